//go:build cluster

package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// namespacePrefix begins the name of each cluster's network namespace.
	namespacePrefix = "tinylet-"
	bridge          = "br0"
)

// namespace is a network namespace with a bridge in it that has hostAddress.
type namespace struct {
	name string
}

// ip runs a command of iproute2 on the machine.
func ip(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// ip runs a command of iproute2 in the namespace.
func (n *namespace) ip(ctx context.Context, args ...string) error {
	_, err := ip(ctx, append([]string{"-n", n.name}, args...)...)
	return err
}

// exec is a command that runs in the namespace, in a process group of its own.
// The kernel kills it with this process.
func (n *namespace) exec(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", n.name}, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd
}

// newNamespace makes a namespace. Until the caller has run a process in it and
// called keep, no other test's start may take it for an orphan.
func newNamespace(ctx context.Context) (_ *namespace, keep func(), err error) {
	unlock, err := lockNamespaces(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	if err := sweepNamespaces(ctx); err != nil {
		return nil, nil, err
	}
	n := &namespace{name: namespacePrefix + strings.ToLower(rand.Text()[:8])}
	if _, err := ip(ctx, "netns", "add", n.name); err != nil {
		return nil, nil, err
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", bridge, "type", "bridge", "forward_delay", "0"},
		{"addr", "add", hostAddress.String(), "dev", bridge},
		{"link", "set", bridge, "up"},
	} {
		if err := n.ip(ctx, args...); err != nil {
			return nil, nil, errors.Join(err, n.remove(context.WithoutCancel(ctx)))
		}
	}
	return n, unlock, nil
}

func (n *namespace) remove(ctx context.Context) error {
	_, err := ip(ctx, "netns", "delete", n.name)
	return err
}

// sweepNamespaces removes the namespaces of tests that were killed: those in
// which no process lives.
func sweepNamespaces(ctx context.Context) error {
	list, err := ip(ctx, "netns", "list")
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line) // a name, and perhaps an id
		if len(fields) == 0 || !strings.HasPrefix(fields[0], namespacePrefix) {
			continue
		}
		left := &namespace{name: fields[0]}
		pids, err := ip(ctx, "netns", "pids", left.name)
		if err != nil || strings.TrimSpace(pids) != "" {
			continue // its owner may be removing it now
		}
		if err := left.remove(ctx); err != nil {
			return fmt.Errorf("remove the leftover of an earlier test: %w", err)
		}
	}
	return nil
}

// lockNamespaces keeps others from making and sweeping namespaces.
func lockNamespaces(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "tinylet-cluster.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock network namespaces: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock network namespaces: %w", err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("lock network namespaces: %w", context.Cause(ctx))
		}
	}
}

// dial connects from inside the namespace.
func (n *namespace) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.inside(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// listen listens inside the namespace.
func (n *namespace) listen(ctx context.Context, network, address string) (listener net.Listener, err error) {
	err = n.inside(func() error {
		listener, err = (&net.ListenConfig{}).Listen(ctx, network, address)
		return err
	})
	return listener, err
}

// inside calls open on a thread that is in the namespace. A socket stays in the
// namespace in which it was made.
func (n *namespace) inside(open func() error) error {
	inside, err := os.Open(filepath.Join("/run/netns", n.name))
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer inside.Close()
	runtime.LockOSThread()
	outside, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer outside.Close()
	if err := unix.Setns(int(inside.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", n.name, err)
	}
	err = open()
	// A thread that cannot leave stays locked and ends with its goroutine.
	if back := unix.Setns(int(outside.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", n.name, back))
	}
	runtime.UnlockOSThread()
	return err
}
