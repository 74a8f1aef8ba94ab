package protect

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// KeepProgram has the code and the constants of this process's program stay in
// memory once they have been read (mlock2(2), MLOCK_ONFAULT); it reads none.
// The protection of a group does not reach all of them: a page is of the group
// whose process read it first, which may be a shell's or that of the service
// before its restart. A node without memory drops such pages, and each one that
// a decision needs comes back from a slow disk.
func KeepProgram() error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("find the program in memory: %w", err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program in memory: %w", err)
	}
	var failed error
	for _, part := range readOnly(maps, program) {
		if _, _, errno := unix.Syscall(unix.SYS_MLOCK2, part.start, part.end-part.start, unix.MLOCK_ONFAULT); errno != 0 {
			failed = errors.Join(failed, fmt.Errorf("keep %d bytes of the program in memory: %w", part.end-part.start, errno))
		}
	}
	return failed
}

// part is a range of addresses, without its end.
type part struct{ start, end uintptr }

// readOnly are the parts of a file that a process has mapped and cannot write,
// by proc_pid_maps(5).
func readOnly(maps []byte, file string) (parts []part) {
	for line := range bytes.Lines(maps) {
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 6)
		if len(fields) < 6 || strings.TrimLeft(fields[5], " ") != file || !strings.HasPrefix(fields[1], "r-") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, strconv.IntSize)
		end, err2 := strconv.ParseUint(to, 16, strconv.IntSize)
		if err1 == nil && err2 == nil && start < end {
			parts = append(parts, part{uintptr(start), uintptr(end)})
		}
	}
	return parts
}
