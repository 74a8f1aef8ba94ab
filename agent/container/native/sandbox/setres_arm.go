package sandbox

import "golang.org/x/sys/unix"

// Those without the number take IDs of 16 bits.
const (
	sysSetresuid = unix.SYS_SETRESUID32
	sysSetresgid = unix.SYS_SETRESGID32
)
