package protect

import (
	"fmt"
	"path"
	"strings"
)

// isService says whether a group is that of a service in systemd's slices. What
// somebody has started by hand is in a scope, and is not what a board lives on.
func isService(group string) bool {
	slices := path.Dir(group)
	for ; path.Ext(slices) == ".slice"; slices = path.Dir(slices) {
	}
	return slices == "/" && strings.HasSuffix(group, ".service") && path.Dir(group) != "/"
}

// Shield has systemd protect the memory of the service that a process is of, if
// it is of one, until the system goes down. Protection reaches no further than
// that of the groups above, so they get as much; what two services in a slice
// claim is then more than it has, and the kernel gives each a part by what it
// uses (cgroup-v2.rst, memory.min). Where more is protected already, that
// stays. It blocks on systemd, for some seconds at most; a process that has
// ended is no error.
func (c *Config) Shield(pid int) error {
	group, err := c.groupOf(pid)
	if err != nil || !isService(group) {
		return c.unlessEnded(pid, err)
	}
	if missing, err := c.Tree.Missing("memory"); err != nil || len(missing) > 0 {
		return err
	}
	for at := group; at != "/"; at = path.Dir(at) {
		if has, err := c.Tree.MemoryMin(at); err == nil && has >= c.reserve() {
			continue
		}
		if err := c.Unit(at, c.protected()); err != nil {
			return fmt.Errorf("have systemd protect the memory of %s: %w", at, err)
		}
	}
	return nil
}
