package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/native/pause"
)

// newNamespaces makes new namespaces those of the calling thread, as flags of unshare(2). With
// mappings they belong to a new user namespace, which is mounted at the path and which the
// thread does not enter: one thread of several cannot (setns(2)).
func newNamespaces(flags int, c *Config, userPath string) error {
	if userPath == "" {
		if flags == 0 {
			return nil
		}
		return unix.Unshare(flags)
	}
	holder, err := startHolder(flags, c)
	if err != nil {
		return err
	}
	dir := fmt.Sprintf("/proc/%d/ns/", holder.Process.Pid)
	err = unix.Mount(dir+"user", userPath, "", unix.MS_BIND, "")
	for name, flag := range map[string]int{"net": unix.CLONE_NEWNET, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS} {
		if err == nil && flags&flag != 0 {
			err = enter(dir+name, flag)
		}
	}
	killed := holder.Process.Kill()
	_ = holder.Wait() // it was killed
	return errors.Join(err, killed)
}

// startHolder starts a process in new namespaces with the mappings. It does nothing.
func startHolder(flags int, c *Config) (*exec.Cmd, error) {
	program, err := pause.Program(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	// Not a file: what is mounted on /run is often noexec.
	fd, err := unix.MemfdCreate("pause", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("pause", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "pause")
	defer func() { _ = file.Close() }()
	if _, err := file.Write(program); err != nil {
		return nil, err
	}
	// A file that is open for writing cannot be executed.
	own, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	defer func() { _ = own.Close() }()
	if err := file.Close(); err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/fd/3", Args: []string{"pause"}, Env: []string{}, Dir: "/", ExtraFiles: []*os.File{own},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: uintptr(flags | unix.CLONE_NEWUSER), UidMappings: c.UIDs, GidMappings: c.GIDs, GidMappingsEnableSetgroups: true,
			Pdeathsig: syscall.SIGKILL, // with the thread that starts it
		},
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start process in user namespace: %w", err)
	}
	return cmd, nil
}

// enter makes a namespace that of the calling thread.
func enter(path string, flag int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	err = unix.Setns(fd, flag)
	_ = unix.Close(fd)
	return os.NewSyscallError("setns", err)
}

// rootOf returns the ID on the host of ID 0 in a user namespace, or -1 if it is not mapped.
func rootOf(ids []syscall.SysProcIDMap) int {
	for _, m := range ids {
		if m.ContainerID == 0 && m.Size > 0 {
			return m.HostID
		}
	}
	return -1
}

func mapsRoot(ids []syscall.SysProcIDMap) error {
	if rootOf(ids) < 0 {
		return errors.New("user namespace: the mapping lacks the ID 0")
	}
	return nil
}

// becomeRoot makes the calling thread root of the sandbox's user namespace, to which the
// sysctls of its IPC namespace belong: the root of the host may not write them (ipc_permissions
// in ipc/ipc_sysctl.c). The thread must end. restore makes the process dumpable again, which the kernel ends with a change of users
// (PR_SET_DUMPABLE(2const)).
func becomeRoot(c *Config) (restore func(), err error) {
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return nil, os.NewSyscallError("prctl", err)
	}
	uid, gid := uintptr(rootOf(c.UIDs)), uintptr(rootOf(c.GIDs))
	// Package unix changes all threads.
	if _, _, errno := unix.RawSyscall(sysSetresgid, gid, gid, gid); errno != 0 {
		return nil, os.NewSyscallError("setresgid", errno)
	}
	if _, _, errno := unix.RawSyscall(sysSetresuid, uid, uid, uid); errno != 0 {
		return nil, os.NewSyscallError("setresuid", errno)
	}
	return func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(dumpable), 0, 0, 0) }, nil
}
