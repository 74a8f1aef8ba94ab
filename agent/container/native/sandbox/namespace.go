// Package sandbox makes what the containers of a pod share without a process: network, IPC
// and UTS namespaces that are bind-mounted, their sysctls and hostname, /dev/shm, and the
// files of the pod's name and DNS. It does not connect the network namespace.
//
// A user namespace cannot be entered by a thread of a process with several, so a sandbox with
// one of its own needs a process while it is created (user_namespaces(7), setns(2)).
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/native/oci"
)

// Config describes a sandbox.
type Config struct {
	// Dir is the directory of the sandbox. Its parent must be on a mount that is private, so
	// that no other mount namespace keeps the sandbox's mounts.
	Dir string
	// NetNS is the path at which the network namespace is mounted, such as
	// /run/netns/<id>. If it is empty, the pod has the network and the UTS namespace of the
	// host.
	NetNS string
	// HostIPC gives the pod the IPC namespace and /dev/shm of the host.
	HostIPC bool
	// Hostname is that of the UTS namespace: at most 64 bytes.
	Hostname string
	// Sysctls are written into the namespaces of the pod. One of a namespace that is the
	// host's is refused, as is one that has none.
	Sysctls map[string]string
	// ShmSize is the size of /dev/shm in bytes; 0 means 64 MiB, as with containerd.
	ShmSize int64
	// SharedPID reserves the path of a PID namespace that the containers share.
	SharedPID bool
	// UIDs and GIDs map the users of a user namespace of the pod's own. Without them it has
	// the host's.
	UIDs, GIDs []syscall.SysProcIDMap
	// DNS is the content of /etc/resolv.conf.
	DNS []byte
}

const defaultShmSize = 64 << 20

// Names in the directory of a sandbox.
const (
	nameIPC        = "ipc"
	nameUTS        = "uts"
	namePID        = "pid"
	nameUser       = "user"
	nameShm        = "shm"
	nameHostname   = "hostname"
	nameResolvConf = "resolv.conf"
)

// Paths are what the containers of a sandbox use. A path is empty where they use the host's.
type Paths struct {
	Net, IPC, UTS, PID, User, Shm, Hostname, ResolvConf string
}

// Paths returns the paths of a sandbox.
func (c *Config) Paths() Paths {
	p := Paths{Net: c.NetNS, Hostname: filepath.Join(c.Dir, nameHostname), ResolvConf: filepath.Join(c.Dir, nameResolvConf)}
	if c.NetNS != "" {
		p.UTS = filepath.Join(c.Dir, nameUTS)
	}
	if len(c.UIDs) > 0 {
		p.User = filepath.Join(c.Dir, nameUser)
	}
	if c.SharedPID {
		p.PID = filepath.Join(c.Dir, namePID)
	}
	if !c.HostIPC {
		p.IPC, p.Shm = filepath.Join(c.Dir, nameIPC), filepath.Join(c.Dir, nameShm)
	}
	return p
}

// Create makes a sandbox, in place of what an interrupted Create has left. After an error
// Remove removes what there is of it.
func Create(c *Config) error {
	writes, err := plan(c)
	if err == nil && len(c.UIDs)+len(c.GIDs) > 0 {
		err = errors.Join(mapsRoot(c.UIDs), mapsRoot(c.GIDs))
	}
	if err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	if err := Remove(c); err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	if err := create(c, writes); err != nil {
		return fmt.Errorf("create sandbox in %q: %w", c.Dir, err)
	}
	return nil
}

func create(c *Config, writes []sysctl) error {
	p := c.Paths()
	if err := os.MkdirAll(c.Dir, 0o711); err != nil { // containers with their own users reach their files
		return err
	}
	for path, content := range map[string][]byte{p.Hostname: []byte(c.Hostname + "\n"), p.ResolvConf: c.DNS} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	if p.Shm != "" {
		if err := mountShm(p.Shm, c.ShmSize); err != nil {
			return err
		}
	}
	for _, pin := range []string{p.Net, p.IPC, p.UTS, p.User} {
		if err := prepare(pin); err != nil {
			return err
		}
	}
	return onThreadThatEnds(func() error { return unshare(c, p, writes) })
}

// onThreadThatEnds calls f on a thread of its own, which ends with the namespaces that f has
// made its own. It is not the main thread: that cannot end, and /proc/self shows its namespaces.
func onThreadThatEnds(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- f() // not unlocked
			return
		}
		done <- onThreadThatEnds(f) // while the main thread is locked to this goroutine
		runtime.UnlockOSThread()
	}()
	return <-done
}

// unshare makes the namespaces of the calling thread those of the sandbox.
func unshare(c *Config, p Paths, writes []sysctl) error {
	flags := 0
	if p.Net != "" {
		flags |= unix.CLONE_NEWNET | unix.CLONE_NEWUTS
	}
	if p.IPC != "" {
		flags |= unix.CLONE_NEWIPC
	}
	if err := newNamespaces(flags, c, p.User); err != nil {
		return fmt.Errorf("create namespaces: %w", err)
	}
	if p.UTS != "" && c.Hostname != "" {
		if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
			return fmt.Errorf("set hostname %q: %w", c.Hostname, err)
		}
	}
	for kind, pin := range map[string]string{"net": p.Net, "ipc": p.IPC, "uts": p.UTS} {
		if pin == "" {
			continue
		}
		if err := unix.Mount("/proc/thread-self/ns/"+kind, pin, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s namespace at %q: %w", kind, pin, err)
		}
	}
	return writeSysctls(c, writes)
}

// writeSysctls writes sysctls in the namespaces of the calling thread, which must end.
func writeSysctls(c *Config, writes []sysctl) error {
	var ofUsers []sysctl
	for _, w := range writes {
		if len(c.UIDs) > 0 && ofIPC(w.path) {
			ofUsers = append(ofUsers, w)
			continue
		}
		if err := w.write(); err != nil {
			return err
		}
	}
	if len(ofUsers) == 0 {
		return nil
	}
	restore, err := becomeRoot(c)
	if err != nil {
		return err
	}
	defer restore()
	for _, w := range ofUsers {
		if err := w.write(); err != nil {
			return err
		}
	}
	return nil
}

// PinPID mounts the PID namespace of a process at a path, at which there is nothing. When the
// first process of the namespace has ended, nothing can be started in it.
func PinPID(pin string, process oci.Process) error {
	fd, err := process.Open()
	if err != nil {
		return fmt.Errorf("mount PID namespace at %q: %w", pin, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := prepare(pin); err != nil {
		return fmt.Errorf("mount PID namespace at %q: %w", pin, err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/pid", process.PID), pin, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount PID namespace of process %d at %q: %w", process.PID, pin, err)
	}
	// Without an end until here, the ID was not that of another process.
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
		return errors.Join(fmt.Errorf("mount PID namespace of process %d: %w", process.PID, err), Unpin(pin))
	}
	return nil
}

// Unpin removes what PinPID has made, if there is any.
func Unpin(pin string) error {
	if err := unmount(pin); err != nil {
		return err
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// prepare makes the file that a namespace is mounted on.
func prepare(pin string) error {
	if pin == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(pin), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(pin, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}

func mountShm(path string, size int64) error {
	if size <= 0 {
		size = defaultShmSize
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	options := fmt.Sprintf("mode=1777,size=%d", size)
	if err := unix.Mount("shm", path, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount %q: %w", path, err)
	}
	return nil
}

// Remove unmounts and removes a sandbox, also one that is incomplete or does not exist.
// Processes that are still in its namespaces keep them.
func Remove(c *Config) error {
	p := c.Paths()
	var failed error
	for _, path := range []string{p.Net, p.IPC, p.UTS, p.PID, p.User, p.Shm} {
		if path != "" {
			failed = errors.Join(failed, unmount(path))
		}
	}
	if failed == nil && p.Net != "" {
		if err := os.Remove(p.Net); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = err
		}
	}
	if failed == nil {
		failed = os.RemoveAll(c.Dir)
	}
	if failed != nil {
		return fmt.Errorf("remove sandbox in %q: %w", c.Dir, failed)
	}
	return nil
}

// unmount unmounts all that is mounted at a path.
func unmount(path string) error {
	const most = 16
	for range most {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINTR), err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil // nothing is mounted
		default:
			return fmt.Errorf("unmount %q: %w", path, err)
		}
	}
	return fmt.Errorf("unmount %q: more than %d mounts", path, most)
}
