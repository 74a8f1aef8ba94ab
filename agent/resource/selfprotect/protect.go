// Package selfprotect keeps the agent and the container runtime alive where pods
// use up the memory. It owns the group in which both live where their init has
// left them in the root of the cgroups, as small inits do, what memory systemd
// protects where they are services of its, and how ready the kernel is to kill
// them. What another init has put into a group of its own stays there: its
// limits are that init's.
package selfprotect

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/cgroups"
)

// Group is the path of the group.
const Group = "/tinylet"

// What is protected of the memory that the group uses: up to a quarter of the
// machine's, and no more than what the agent and containerd have in use with
// ten pods, their shims and programs in the page cache included.
const (
	memoryPart = 4
	memoryMost = 96 << 20
	// What the agent needs of it for itself where the two have groups of their
	// own: half, and no more than what it and its program have in use.
	agentPart = 2
	agentMost = 32 << 20
)

// Reserve is how much of the group's memory is protected, on a machine with so
// many bytes: whole pages, as the kernel shows it.
func Reserve(memory uint64) uint64 { return pages(min(memory/memoryPart, memoryMost)) }

// Shares are what agent and runtime have of the reserve where each is in a
// group of its own. Together they are no more than the reserve: of one that is
// claimed twice the kernel gives each a part by what it uses, the agent's
// becomes less with each shim, and its program goes from memory page by page
// just when it has to act.
func Shares(memory uint64) (agent, runtime uint64) {
	all := Reserve(memory)
	agent = pages(min(all/agentPart, agentMost))
	return agent, all - agent
}

func pages(n uint64) uint64 { return n - n%uint64(os.Getpagesize()) }

// cpuWeight is five times that of a group that nobody has weighed: what lived
// in the root counted each by itself against all pods.
const cpuWeight = 500

// Config is what is protected, and where.
type Config struct {
	Tree *cgroups.Tree
	// Proc is where processes are told of; "" is /proc.
	Proc string
	// Memory is the machine's, in bytes.
	Memory int64
	// Unit gives a unit of systemd, by the path of its group, other limits
	// (cgroups.Slices.Set). The shields need it.
	Unit func(path string, r cgroups.Resources) error
	// OOMScoreAdj is given to both (proc_pid_oom_score_adj(5)), unless they
	// have a lower one.
	OOMScoreAdj int
}

func (c *Config) proc(pid int, file string) string {
	root := c.Proc
	if root == "" {
		root = "/proc"
	}
	return filepath.Join(root, strconv.Itoa(pid), file)
}

// Process protects one process. It does so as far as it can, and its error
// says what could not be done; a process that has ended is none.
func (c *Config) Process(pid int) error {
	return c.unlessEnded(pid, errors.Join(c.enter(pid), c.spare(pid)))
}

func (c *Config) unlessEnded(pid int, err error) error {
	if errors.Is(err, unix.ESRCH) || err != nil && c.ended(pid) {
		return nil
	}
	return err
}

func (c *Config) ended(pid int) bool {
	_, err := os.Stat(c.proc(pid, "cgroup"))
	return errors.Is(err, os.ErrNotExist)
}

// groupOf is the path of a process's group; "" where there is cgroup v1 beside.
func (c *Config) groupOf(pid int) (string, error) {
	text, err := os.ReadFile(c.proc(pid, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("read the cgroup of process %d: %w", pid, err)
	}
	group, alone := strings.CutPrefix(string(bytes.TrimSpace(text)), "0::")
	if !alone {
		return "", nil
	}
	return group, nil
}

// Top is the group of a process below the root, in which its memory is
// protected where it is; "" where it is in the root or not known.
func (c *Config) Top(pid int) string {
	group, _ := c.groupOf(pid)
	name, _, _ := strings.Cut(strings.TrimPrefix(group, "/"), "/")
	if name == "" {
		return ""
	}
	return "/" + name
}

// enter moves a process from the root into the group.
func (c *Config) enter(pid int) error {
	if group, err := c.groupOf(pid); err != nil || group != "/" {
		return err
	}
	if missing, err := c.Tree.Missing("cpu", "memory"); err != nil || len(missing) > 0 {
		return err // the rest of the root has no limits then either
	}
	r := protected(Reserve(c.memory()))
	r.CPUWeight = cpuWeight
	if err := c.Tree.Ensure(Group, r); err != nil {
		return err
	}
	return c.Tree.Attach(Group, pid)
}

func (c *Config) memory() uint64 { return uint64(max(c.Memory, 0)) }

func protected(least uint64) cgroups.Resources {
	return cgroups.Resources{Unified: map[string]string{"memory.min": strconv.FormatUint(least, 10)}}
}

// spare lowers a process's score, by which the kernel chooses whom to kill.
func (c *Config) spare(pid int) error {
	file := c.proc(pid, "oom_score_adj")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read how ready the kernel is to kill process %d: %w", pid, err)
	}
	if has, err := strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && has <= c.OOMScoreAdj {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(c.OOMScoreAdj)), 0); err != nil {
		return fmt.Errorf("have the kernel spare process %d when memory runs out: %w", pid, err)
	}
	return nil
}
