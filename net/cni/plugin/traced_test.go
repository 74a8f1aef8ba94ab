package plugin

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/cni"
)

// The test binary is also the plugin, as tinylet is.
func TestMain(m *testing.M) {
	if path.Base(os.Args[0]) == cni.Type {
		debug.SetGCPercent(-1)
		os.Exit(Run(os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// renameat is not in every table of unix.
var renameat = map[string]uint64{"amd64": 264, "arm64": 38}[runtime.GOARCH]

// acts are the system calls that can change something beyond the process. Some only read,
// such as a netlink request.
var acts = map[uint64]string{
	unix.SYS_BIND: "bind", unix.SYS_FCHMOD: "fchmod", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FLOCK: "flock", unix.SYS_FSYNC: "fsync",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_IOCTL: "ioctl", unix.SYS_LINKAT: "linkat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_MOUNT: "mount",
	unix.SYS_PWRITE64: "pwrite64", renameat: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_SENDMMSG: "sendmmsg",
	unix.SYS_SENDMSG: "sendmsg", unix.SYS_SENDTO: "sendto", unix.SYS_SETNS: "setns", unix.SYS_SYMLINKAT: "symlinkat",
	unix.SYS_UMOUNT2: "umount2", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_UNSHARE: "unshare", unix.SYS_WRITE: "write", unix.SYS_WRITEV: "writev",
}

// traced is a process that is traced by the thread that has started it.
type traced struct {
	pid    int
	nth    int          // index of the call at which it is killed, from 1
	acts   []string     // calls so far, including the one at which it is killed
	again  map[int]bool // threads whose call the kernel restarts
	status unix.WaitStatus
}

// trace starts the plugin, and kills it before its nth call of acts; 0 is never. The
// string is its output.
func trace(env []string, config string, nth int) (*traced, string, error) {
	in, err := pipe(config)
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	out, answer, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer out.Close()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{cni.Type}, &syscall.ProcAttr{
		Env: env, Files: []uintptr{in.Fd(), answer.Fd(), 2}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	answer.Close()
	if err != nil {
		return nil, "", fmt.Errorf("trace a process: %w", err)
	}
	p := &traced{pid: pid, nth: nth, again: map[int]bool{}}
	if err := p.follow(); err != nil {
		return nil, "", errors.Join(err, unix.Kill(pid, unix.SIGKILL))
	}
	data, err := io.ReadAll(out)
	return p, string(data), err
}

// pipe returns a pipe with a text that is shorter than the kernel's buffer.
func pipe(text string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.WriteString(text)
	return r, errors.Join(err, w.Close())
}

// follow runs the process to its end. The process ends only when all its threads are
// waited for.
func (p *traced) follow() error {
	for started := false; ; {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for a traced process: %w", err)
		case tid == p.pid && (status.Exited() || status.Signaled()):
			p.status = status
			return nil
		case !status.Stopped():
			continue
		}
		if !started {
			err = unix.PtraceSetOptions(tid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL)
			started = true
		}
		if err == nil {
			err = p.goOn(tid, status.StopSignal())
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // killed meanwhile
			return fmt.Errorf("trace a process: %w", err)
		}
	}
}

// goOn runs a thread to its next stop, or kills the process.
func (p *traced) goOn(tid int, stopped unix.Signal) error {
	if stopped == unix.SIGTRAP|0x80 { // PTRACE_O_TRACESYSGOOD
		name, err := p.acting(tid)
		if err != nil {
			return err
		}
		if name != "" && (p.nth == 0 || len(p.acts) < p.nth) {
			p.acts = append(p.acts, name)
			if len(p.acts) == p.nth {
				return unix.Kill(p.pid, unix.SIGKILL)
			}
		}
		stopped = 0
	}
	if stopped == unix.SIGTRAP || stopped == unix.SIGSTOP { // of tracing: a thread was made, and begins
		stopped = 0
	}
	return unix.PtraceSyscall(tid, int(stopped))
}

// acting returns the name of the call of acts before which a thread has stopped, or "". A
// call that the kernel restarts, because a lock was held, is not counted again.
func (p *traced) acting(tid int) (string, error) {
	info, err := stoppedAt(tid)
	switch {
	case err != nil:
		return "", err
	case info.op == unix.PTRACE_SYSCALL_INFO_EXIT:
		p.again[tid] = int64(info.number) <= -512 && int64(info.number) >= -516 // ERESTARTSYS and the like of linux/errno.h
		return "", nil
	case p.again[tid]:
		return "", nil
	case info.number == unix.SYS_WRITE && isEventfd(p.pid, info.args[0]):
		return "", nil // the Go scheduler wakes its own poller
	case info.number == unix.SYS_OPENAT && info.args[2]&(unix.O_CREAT|unix.O_TRUNC) != 0:
		return "openat", nil
	}
	return acts[info.number], nil
}

func isEventfd(pid int, fd uint64) bool {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	return err == nil && target == "anon_inode:[eventfd]"
}

// syscallInfo is ptrace_syscall_info of linux/ptrace.h.
type syscallInfo struct {
	op     uint8
	_      [3]byte
	_      uint32
	_      [2]uint64
	number uint64 // or what it has returned
	args   [6]uint64
}

func stoppedAt(tid int) (info syscallInfo, err error) {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// addKilled runs an ADD in a process, and kills it before its nth call of acts; 0 is never.
// It returns the calls, of which the last is the one at which it was killed, and its output.
func (n *node) addKilled(c *container, config string, nth int) (acts []string, answer string) {
	n.Helper()
	if renameat == 0 {
		n.Skipf("the numbers of system calls are known for amd64 and arm64, not for %s", runtime.GOARCH)
	}
	env := []string{"CNI_COMMAND=ADD"}
	for name, value := range c.environment() {
		env = append(env, name+"="+value)
	}
	var p *traced
	err := n.on(func() (err error) {
		p, answer, err = trace(env, config, nth)
		return err
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		n.Skipf("no process can be traced here: %v", err)
	}
	if err != nil {
		n.Fatal(err)
	}
	if nth == 0 && p.status.ExitStatus() != 0 || nth > 0 && p.status.Signal() != unix.SIGKILL {
		n.Fatalf("it ends with status %#x, has done %v and says %s", p.status, p.acts, answer)
	}
	return p.acts, answer
}
