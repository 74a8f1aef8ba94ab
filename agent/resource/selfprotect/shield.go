package selfprotect

import (
	"fmt"
	"path"
	"strings"
)

// isService reports whether a cgroup is that of a service in systemd's slices. A
// process started by hand is in a scope and is not essential.
func isService(group string) bool {
	slices := path.Dir(group)
	for ; path.Ext(slices) == ".slice"; slices = path.Dir(slices) {
	}
	return slices == "/" && strings.HasSuffix(group, ".service") && path.Dir(group) != "/"
}

// ProtectUnit sets memory.min of a share in bytes through systemd for the service of a
// process, until the system shuts down. It does nothing if the process is in no service.
// memory.min is effective only up to that of the parent cgroups, so these get the whole
// reserve. A higher existing value stays. It blocks on systemd, for some seconds at most.
// An exited process is no error.
func (c *Config) ProtectUnit(pid int, share uint64) error {
	group, err := c.cgroupOf(pid)
	if err != nil || !isService(group) {
		return c.ignoreExited(pid, err)
	}
	if missing, err := c.Tree.Missing("memory"); err != nil || len(missing) > 0 {
		return err
	}
	least := share
	for at := group; at != "/"; at = path.Dir(at) {
		if has, err := c.Tree.MemoryMin(at); err != nil || has < least {
			if err := c.SetUnit(at, memoryMin(least)); err != nil {
				return fmt.Errorf("set memory.min of %s through systemd: %w", at, err)
			}
		}
		least = ProtectedMemory(c.Memory)
	}
	return nil
}
