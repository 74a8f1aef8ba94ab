package selfprotect

import (
	"context"
	"log/slog"
	"os"
	"runtime"

	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/cgroups"
)

// Guard applies the protection to this process and to the container runtime. It logs
// failures.
type Guard struct {
	config Config
	socket string // path of the runtime's socket
	cgroup string
	log    *slog.Logger
}

// NewGuard protects this process before it returns. socket is the path of the
// runtime's socket, oomScoreAdj the kubelet configuration's setting.
func NewGuard(tree *cgroups.Tree, socket string, oomScoreAdj int, log *slog.Logger) *Guard {
	g := &Guard{log: log, socket: socket, config: Config{
		Tree: tree, Memory: uint64(max(machine.Memory(machine.Roots{}), 0)), OOMScoreAdj: oomScoreAdj,
		SetUnit: func(path string, r cgroups.Resources) error {
			units := tree.NewSlices("")
			defer units.Close()
			return units.Set(path, r)
		},
	}}
	g.warn("agent", os.Getpid(), g.config.Protect(os.Getpid()))
	g.cgroup = g.config.TopLevelCgroup(os.Getpid())
	return g
}

// Cgroup returns the top-level cgroup in which this process is protected, or "".
func (g *Guard) Cgroup() string { return g.cgroup }

// LockRehearsed locks the program pages that rehearse uses in memory, as the function
// LockRehearsed does. After each call of rehearse it also runs the garbage collector and
// logs a message, because a decision without free memory may need the code of both.
func (g *Guard) LockRehearsed(rehearse func()) {
	run := 0
	locked, err := LockRehearsed(func() {
		run++
		rehearse()
		runtime.GC()
		g.log.Info("rehearsed an eviction", "run", run)
	})
	g.warn("agent", os.Getpid(), err)
	if locked > 0 {
		g.log.Info("locked the code of an eviction in memory", "bytes", locked)
	}
}

// RuntimeConnected protects the process that listens on the runtime's socket. It blocks
// for up to 5 s to find it. It sets the protection by systemd, for both processes, in a
// new goroutine, because systemd may be busy.
func (g *Guard) RuntimeConnected() {
	pid, err := ListenerPID(context.Background(), g.socket)
	if err != nil {
		g.log.Warn("cannot find container runtime process to protect", "error", err)
	} else {
		g.warn("container runtime", pid, g.config.Protect(pid))
	}
	if !cgroups.SystemdRuns("") {
		return
	}
	agentShare, runtimeShare := SplitProtectedMemory(g.config.Memory)
	go func() {
		g.warn("agent", os.Getpid(), g.config.ProtectUnit(os.Getpid(), agentShare))
		if err == nil {
			g.warn("container runtime", pid, g.config.ProtectUnit(pid, runtimeShare))
		}
	}()
}

func (g *Guard) warn(what string, pid int, err error) {
	if err != nil {
		g.log.Warn("cannot protect process", "process", what, "pid", pid, "error", err)
	}
}
