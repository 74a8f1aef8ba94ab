// Package nstest makes network namespaces for tests: each test its own, gone
// with it. No binary links it.
package nstest

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// New makes a network namespace that nothing is in, with its loopback down. It
// lives as long as the file, which the test's end closes. The test is skipped
// where the process may not make one.
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
