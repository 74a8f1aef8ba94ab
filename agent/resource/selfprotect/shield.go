package selfprotect

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

// ShieldAgent has systemd protect the memory of the service that the agent's
// process is of, if it is of one, until the system goes down: its share of the
// reserve. Protection reaches no further than that of the groups above, so these
// get the whole reserve. Where more is protected already, that stays. It blocks
// on systemd, for some seconds at most; a process that has ended is no error.
func (c *Config) ShieldAgent(pid int) error {
	share, _ := Shares(c.memory())
	return c.shield(pid, share)
}

// ShieldRuntime is ShieldAgent for the runtime's process and share.
func (c *Config) ShieldRuntime(pid int) error {
	_, share := Shares(c.memory())
	return c.shield(pid, share)
}

func (c *Config) shield(pid int, share uint64) error {
	group, err := c.groupOf(pid)
	if err != nil || !isService(group) {
		return c.unlessEnded(pid, err)
	}
	if missing, err := c.Tree.Missing("memory"); err != nil || len(missing) > 0 {
		return err
	}
	least := share
	for at := group; at != "/"; at = path.Dir(at) {
		if has, err := c.Tree.MemoryMin(at); err != nil || has < least {
			if err := c.Unit(at, protected(least)); err != nil {
				return fmt.Errorf("have systemd protect the memory of %s: %w", at, err)
			}
		}
		least = Reserve(c.memory())
	}
	return nil
}
