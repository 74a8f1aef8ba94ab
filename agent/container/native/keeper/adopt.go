package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/native/oci"
)

// adoptAll takes over the containers of a keeper that has died.
func (k *Keeper) adoptAll() error {
	dirs, err := os.ReadDir(k.containersDir())
	if err != nil {
		return err
	}
	for _, d := range dirs {
		dir := filepath.Join(k.containersDir(), d.Name())
		state, err := readRecord(dir)
		if err != nil {
			k.config.Log.Warn("cannot read record of container", "dir", dir, "error", err)
			state = Container{ID: d.Name(), Phase: PhaseInterrupted}
		}
		if !idPattern().MatchString(state.ID) {
			continue
		}
		c := newContainer(dir, state)
		k.containers[state.ID] = c
		if err := k.adopt(c); err != nil {
			k.config.Log.Warn("container has no log", "container", state.ID, "error", err)
		}
	}
	return nil
}

// adopt takes over a container by its record.
func (k *Keeper) adopt(c *container) error {
	switch c.state.Phase {
	case PhaseRunning:
	case PhaseExited:
		return nil
	default:
		c.state.Phase = PhaseInterrupted
		return nil
	}
	var failed error
	if err := c.log.open(); err != nil {
		failed = errors.Join(failed, err)
	}
	if !c.state.Terminal { // the terminal's master has died with the keeper
		for _, name := range []string{fileOut, fileErr} {
			fd, err := openFIFO(filepath.Join(c.dir, name))
			if err == nil {
				err = c.read(k.outputs, "std"+name, fd)
			}
			failed = errors.Join(failed, err)
		}
	}
	if c.state.Stdin && !c.state.Terminal {
		if fd, err := openStdin(filepath.Join(c.dir, fileIn)); err == nil {
			c.stdin = fd // else the client has closed it
		}
	}
	k.await(c)
	return failed
}

// await waits for the end of a container's first process, which may be no child.
func (k *Keeper) await(c *container) {
	c.mu.Lock()
	if len(c.streams) == 0 {
		close(c.ended)
	}
	process := oci.Process{PID: c.state.PID, StartTime: c.state.StartTime}
	c.mu.Unlock()
	fd, err := process.Open()
	if err != nil {
		go k.ended(c, 0, false)
		return
	}
	if _, parent, err := oci.FindProcess(process.PID); err == nil && parent == os.Getpid() {
		_ = unix.Close(fd)
		k.reaper.claim(process.PID, func(status unix.WaitStatus) { go k.ended(c, codeOf(status), true) })
		return
	}
	go func() {
		code, known := awaitExit(fd)
		k.ended(c, code, known)
	}()
}

// awaitExit waits until a process that is no child has ended, and returns its exit code if
// the kernel has it. It closes the pidfd.
func awaitExit(pidfd int) (code int32, known bool) {
	if err := unix.SetNonblock(pidfd, true); err != nil {
		_ = unix.Close(pidfd)
		return 0, false
	}
	f := os.NewFile(uintptr(pidfd), "pidfd") // waits without a thread
	defer func() { _ = f.Close() }()
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, false
	}
	wait := func(events int16) error {
		return conn.Read(func(fd uintptr) bool {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 0)
			return err == nil && n > 0 && poll[0].Revents&events != 0
		})
	}
	if err := wait(unix.POLLIN | unix.POLLHUP); err != nil {
		return 0, false
	}
	if code, known := exitInfo(pidfd); known || f.SetReadDeadline(time.Now().Add(drainTimeout)) != nil {
		return code, known
	}
	_ = wait(unix.POLLHUP) // the parent has reaped it
	return exitInfo(pidfd)
}

// pidfdInfo is struct pidfd_info in its first size (include/uapi/linux/pidfd.h).
type pidfdInfo struct {
	mask, cgroup                              uint64
	pid, tgid, ppid                           uint32
	ruid, rgid, euid, egid, suid, sgid, fsuid uint32
	fsgid                                     uint32
	exitCode                                  int32
}

const (
	pidfdGetInfo  = 3<<30 | 64<<16 | 0xff<<8 | 11 // _IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)
	pidfdInfoExit = 1 << 3
)

// exitInfo returns the exit code of a process that has been reaped: Linux 6.15 keeps it.
func exitInfo(pidfd int) (code int32, known bool) {
	info := pidfdInfo{mask: pidfdInfoExit}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
	if errno != 0 || info.mask&pidfdInfoExit == 0 {
		return 0, false
	}
	return codeOf(unix.WaitStatus(info.exitCode)), true
}

// handover is what a keeper process gives to the program that replaces it: numbers of open
// descriptors.
type handover struct {
	Lock       int            `json:"lock"`
	Listener   int            `json:"listener"`
	Containers []handoverItem `json:"containers"`
}

type handoverItem struct {
	State   Container        `json:"state"`
	Stdin   int              `json:"stdin"`
	Streams []handoverStream `json:"streams"`
}

type handoverStream struct {
	Name     string `json:"name"`
	FD       int    `json:"fd"`
	Terminal bool   `json:"terminal"`
	Pending  []byte `json:"pending,omitempty"`
	Clients  []int  `json:"clients,omitempty"`
}

// handoverVariable has the number of the descriptor with the handover.
const handoverVariable = "TINYLET_KEEPER_HANDOVER"

// maxHandover bounds a handover in bytes.
const maxHandover = 64 << 20

// takeHandover returns what the program before gave to this one, or nil.
func takeHandover() (*handover, error) {
	text := os.Getenv(handoverVariable)
	if text == "" {
		return nil, nil
	}
	var fd int
	if _, err := fmt.Sscanf(text, "%d", &fd); err != nil || fd < 3 {
		return nil, fmt.Errorf("%s is %q", handoverVariable, text)
	}
	if err := os.Unsetenv(handoverVariable); err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "handover")
	defer func() { _ = f.Close() }()
	former := new(handover)
	if err := json.NewDecoder(f).Decode(former); err != nil {
		return nil, fmt.Errorf("decode handover: %w", err)
	}
	for _, fd := range former.descriptors() {
		unix.CloseOnExec(fd)
	}
	return former, nil
}

// descriptors returns the open descriptors of a handover.
func (h *handover) descriptors() []int {
	out := []int{h.Lock, h.Listener}
	for i := range h.Containers {
		item := &h.Containers[i]
		if item.Stdin >= 0 {
			out = append(out, item.Stdin)
		}
		for _, s := range item.Streams {
			out = append(append(out, s.FD), s.Clients...)
		}
	}
	return out
}

// resumeAll takes over the containers of the program before, in the same process.
func (k *Keeper) resumeAll(former *handover) {
	for i := range former.Containers {
		item := &former.Containers[i]
		c := newContainer(filepath.Join(k.containersDir(), item.State.ID), item.State)
		k.containers[item.State.ID] = c
		c.stdin = item.Stdin
		if c.state.Phase != PhaseRunning {
			continue
		}
		if err := c.log.open(); err != nil {
			k.config.Log.Warn("container has no log", "container", c.state.ID, "error", err)
		}
		for _, h := range item.Streams {
			s := &stream{c: c, fd: h.FD, entries: entries{stream: h.Name, pending: h.Pending}}
			for _, fd := range h.Clients {
				s.tees = append(s.tees, tee{fd: fd})
			}
			resume := c.resume
			if h.Terminal {
				resume = c.readMaster
			}
			if err := resume(k.outputs, s); err != nil {
				k.config.Log.Warn("cannot continue output of container", "container", c.state.ID, "error", err)
			}
		}
		k.await(c)
	}
}
