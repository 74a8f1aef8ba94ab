package nstest

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WithoutNetfilter calls do in a network namespace, as on a kernel without nfnetlink and
// thus without nftables.
func WithoutNetfilter(ns *os.File, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // forever: the thread ends with the goroutine
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = LackNetfilter()
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// LackNetfilter makes the calling thread behave as on a kernel without nfnetlink and thus
// without nftables: it cannot open sockets of that protocol. The goroutine must be locked
// to its thread and must never be unlocked.
func LackNetfilter() error {
	const (
		number, domain, protocol = 0, 16, 32 // struct seccomp_data; the lower half of each argument counts
		load                     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal                    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer                   = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load, K: number}, {Code: equal, K: unix.SYS_SOCKET, Jf: 5},
		{Code: load, K: domain}, {Code: equal, K: unix.AF_NETLINK, Jf: 3},
		{Code: load, K: protocol}, {Code: equal, K: unix.NETLINK_NETFILTER, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	runtime.KeepAlive(filter)
	if err != nil {
		return fmt.Errorf("filter sockets of netfilter: %w", err)
	}
	return nil
}
