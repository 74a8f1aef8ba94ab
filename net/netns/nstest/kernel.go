package nstest

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WithoutNetfilter runs something in a network namespace on a kernel without
// nfnetlink, and so without nftables.
func WithoutNetfilter(ns *os.File, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
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

// LackNetfilter has the calling thread live on a kernel without nfnetlink, and so
// without nftables: it can open no sockets of that protocol. The goroutine must
// be locked to its thread, and must never be unlocked.
func LackNetfilter() error {
	const (
		number, domain, protocol = 0, 16, 32 // struct seccomp_data; what counts of an argument is its first half
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
		return fmt.Errorf("take netfilter from a thread: %w", err)
	}
	return nil
}
