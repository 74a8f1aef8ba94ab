// Package selfprotect keeps the agent and the container runtime alive when pods
// exhaust the memory. It moves both into a cgroup if their init left them in the root
// cgroup, as small inits do; it sets memory.min through systemd if they are systemd
// services; and it lowers their oom_score_adj. A process that another init has put
// into a cgroup stays there, with the limits of that init. It also locks the program
// pages that an eviction needs in memory, and returns free memory of the agent's own
// heap to the kernel.
package selfprotect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/cgroups"
)

// Cgroup is the path of the cgroup of the agent and the runtime.
const Cgroup = "/tinylet"

// The protected memory of the cgroup (memory.min): up to a quarter of the machine's
// memory, and at most what the agent and containerd use with ten pods, including
// their shims and program pages in the page cache.
const (
	memoryPart = 4
	memoryMost = 96 << 20
	// The agent's share if the two have separate cgroups: half, and at most what it
	// and its program use.
	agentPart = 2
	agentMost = 32 << 20
)

// ProtectedMemory returns how many bytes of the cgroup's memory are protected on a machine
// with that many bytes. The result is in whole pages, as the kernel shows it.
func ProtectedMemory(memory uint64) uint64 { return roundToPages(min(memory/memoryPart, memoryMost)) }

// SplitProtectedMemory returns how the reserve is divided if agent and runtime have separate
// cgroups. The sum equals the reserve. If both claimed all of it, the kernel would
// divide it by usage: the agent's part would shrink with each shim, and its program
// pages would be reclaimed when it has to act.
func SplitProtectedMemory(memory uint64) (agent, runtime uint64) {
	all := ProtectedMemory(memory)
	agent = roundToPages(min(all/agentPart, agentMost))
	return agent, all - agent
}

func roundToPages(n uint64) uint64 { return n - n%uint64(os.Getpagesize()) }

// cpuWeight is five times the default weight. In the root cgroup each process
// competed individually with all pods.
const cpuWeight = 500

// Config configures the protection.
type Config struct {
	Tree *cgroups.Tree
	// Proc is the path of procfs; "" means /proc.
	Proc string
	// Memory is the machine's memory in bytes.
	Memory uint64
	// SetUnit sets limits of a systemd unit, identified by its cgroup path
	// (cgroups.Slices.Set). ProtectUnit requires it.
	SetUnit func(path string, r cgroups.Resources) error
	// OOMScoreAdj is set for both processes (proc_pid_oom_score_adj(5)), unless
	// theirs is lower.
	OOMScoreAdj int
}

func (c *Config) proc(pid int, file string) string {
	return filepath.Join(cmp.Or(c.Proc, "/proc"), strconv.Itoa(pid), file)
}

// Protect protects one process. It continues after failures, and returns all of them.
// An exited process is no error.
func (c *Config) Protect(pid int) error {
	return c.ignoreExited(pid, errors.Join(c.moveToCgroup(pid), c.lowerOOMScoreAdj(pid)))
}

func (c *Config) ignoreExited(pid int, err error) error {
	if errors.Is(err, unix.ESRCH) || err != nil && c.exited(pid) {
		return nil
	}
	return err
}

func (c *Config) exited(pid int) bool {
	_, err := os.Stat(c.proc(pid, "cgroup"))
	return errors.Is(err, os.ErrNotExist)
}

// cgroupOf returns the path of a process's cgroup, or "" if cgroup v1 is mounted too.
func (c *Config) cgroupOf(pid int) (string, error) {
	text, err := os.ReadFile(c.proc(pid, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("read cgroup of process %d: %w", pid, err)
	}
	group, alone := strings.CutPrefix(string(bytes.TrimSpace(text)), "0::")
	if !alone {
		return "", nil
	}
	return group, nil
}

// TopLevelCgroup returns the top-level cgroup of a process, in which its memory is protected. It
// returns "" if the process is in the root cgroup or its cgroup is unknown.
func (c *Config) TopLevelCgroup(pid int) string {
	group, _ := c.cgroupOf(pid)
	name, _, _ := strings.Cut(strings.TrimPrefix(group, "/"), "/")
	if name == "" {
		return ""
	}
	return "/" + name
}

// moveToCgroup moves a process from the root cgroup into Cgroup. It does nothing if the
// process is in another cgroup, or if the kernel lacks the cpu or the memory controller.
func (c *Config) moveToCgroup(pid int) error {
	if group, err := c.cgroupOf(pid); err != nil || group != "/" {
		return err
	}
	if missing, err := c.Tree.Missing("cpu", "memory"); err != nil || len(missing) > 0 {
		return err // without these controllers no cgroup has limits
	}
	r := memoryMin(ProtectedMemory(c.Memory))
	r.CPUWeight = cpuWeight
	if err := c.Tree.Ensure(Cgroup, r); err != nil {
		return err
	}
	return c.Tree.Attach(Cgroup, pid)
}

func memoryMin(least uint64) cgroups.Resources {
	return cgroups.Resources{Unified: map[string]string{"memory.min": strconv.FormatUint(least, 10)}}
}

// lowerOOMScoreAdj sets a process's oom_score_adj, unless it is lower.
func (c *Config) lowerOOMScoreAdj(pid int) error {
	file := c.proc(pid, "oom_score_adj")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read oom_score_adj of process %d: %w", pid, err)
	}
	if has, err := strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && has <= c.OOMScoreAdj {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(c.OOMScoreAdj)), 0); err != nil {
		return fmt.Errorf("set oom_score_adj of process %d: %w", pid, err)
	}
	return nil
}
