// Package nstest creates network namespaces for tests. Each lives as long as its test.
// No binary links the package.
package nstest

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// New creates a network namespace with only a loopback interface, which is down. It
// lives as long as the file, which is closed when the test ends. The test is skipped if
// the process may not create one.
func New(t testing.TB) *os.File {
	t.Helper()
	type made struct {
		file *os.File
		err  error
	}
	done := make(chan made)
	go func() {
		// The thread ends with the goroutine: it is never unlocked.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- made{err: err}
			return
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		done <- made{file, err}
	}()
	m := <-done
	if errors.Is(m.err, fs.ErrPermission) {
		t.Skip("no network namespace can be made: tests of networks need root")
	}
	if m.err != nil {
		t.Fatalf("make a network namespace: %v", m.err)
	}
	t.Cleanup(func() { m.file.Close() })
	return m.file
}
