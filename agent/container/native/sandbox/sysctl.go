package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// ErrSysctl means that a sysctl cannot be set for a pod.
var ErrSysctl = errors.New("sysctl not allowed")

// sysctl is a value to write below /proc/sys, by a thread in the namespace of the pod.
type sysctl struct {
	name, path, value string
}

// defaults are what containerd sets in a network namespace of the pod (enable_unprivileged_ports
// and enable_unprivileged_icmp in internal/cri/config/config_unix.go).
var defaults = map[string]string{
	"net.ipv4.ip_unprivileged_port_start": "0",
	pingGroups:                            "0 2147483647",
}

const pingGroups = "net.ipv4.ping_group_range"

// plan returns the sysctls to write, in the order of their names. It refuses those that would
// change the host.
func plan(c *Config) ([]sysctl, error) {
	all := map[string]sysctl{}
	if c.NetNS != "" {
		for name, value := range defaults {
			if name == pingGroups && len(c.UIDs) > 0 {
				continue // the namespace does not have all groups
			}
			all[pathOf(name)] = sysctl{name, pathOf(name), value}
		}
	}
	for name, value := range c.Sysctls {
		path := pathOf(name)
		switch {
		case !validPath(path):
			return nil, fmt.Errorf("%w: %q is no name of a sysctl", ErrSysctl, name)
		case ofNetwork(path):
			if c.NetNS == "" {
				return nil, fmt.Errorf("%w: %q would be set on the host, whose network the pod has", ErrSysctl, name)
			}
		case ofIPC(path):
			if c.HostIPC {
				return nil, fmt.Errorf("%w: %q would be set on the host, whose IPC namespace the pod has", ErrSysctl, name)
			}
		default:
			return nil, fmt.Errorf("%w: %q is not in a namespace of the pod", ErrSysctl, name)
		}
		all[path] = sysctl{name, path, value}
	}
	var out []sysctl
	for _, path := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[path])
	}
	return out, nil
}

// pathOf returns the path below /proc/sys. The first separator in a name, a dot or a slash, is
// that of its parts; the other character is part of a name (sysctl(8)).
func pathOf(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '/' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

func validPath(path string) bool {
	const longest = 253
	if len(path) > longest || strings.ContainsRune(path, 0) {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func ofNetwork(path string) bool { return strings.HasPrefix(path, "net/") }

// ofIPC reports whether a sysctl belongs to the IPC namespace (ipc_namespaces(7)).
func ofIPC(path string) bool {
	return strings.HasPrefix(path, "fs/mqueue/") || slices.Contains([]string{
		"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/msg_next_id", "kernel/sem", "kernel/sem_next_id",
		"kernel/shmall", "kernel/shmmax", "kernel/shmmni", "kernel/shm_next_id", "kernel/shm_rmid_forced",
	}, path)
}

// write writes the value in the namespaces of the calling thread.
func (s sysctl) write() error {
	root, err := os.OpenRoot("/proc/sys")
	if err != nil {
		return fmt.Errorf("set sysctl %s: %w", s.name, err)
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(s.path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("set sysctl %s: %w", s.name, err)
	}
	_, err = f.WriteString(s.value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set sysctl %s to %q: %w", s.name, s.value, err)
	}
	return nil
}
