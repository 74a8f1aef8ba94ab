package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do calls f on a thread in the network namespace open as ns, and returns its error.
// f must start no goroutine that depends on the namespace. f must return: if it ends
// its goroutine (t.Skip, t.Fatal), Do blocks forever. If the thread cannot return to
// its own namespace, it ends.
func Do(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- onThread(ns, f) }()
	return <-done
}

// onThread locks the calling goroutine to its thread. The runtime ends the thread of
// a goroutine that ends while it is locked.
func onThread(ns *os.File, f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	defer home.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", ns.Name(), err)
	}
	err = f()
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
