package selfprotect

import (
	"context"
	"log/slog"
	"os"
	"runtime"

	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/cgroups"
)

// Guard applies the protection to this process and to the container runtime. What
// cannot be protected is logged.
type Guard struct {
	config Config
	socket string // of the runtime
	cgroup string
	log    *slog.Logger
}

// NewGuard protects this process at once. socket is the path of the runtime's
// socket, oomScoreAdj the setting of the kubelet's configuration.
func NewGuard(tree *cgroups.Tree, socket string, oomScoreAdj int, log *slog.Logger) *Guard {
	g := &Guard{log: log, socket: socket, config: Config{
		Tree: tree, Memory: machine.Memory(machine.Roots{}), OOMScoreAdj: oomScoreAdj,
		Unit: func(path string, r cgroups.Resources) error {
			units := tree.NewSlices("")
			defer units.Close()
			return units.Set(path, r)
		},
	}}
	g.warn("agent", os.Getpid(), g.config.Process(os.Getpid()))
	g.cgroup = g.config.Top(os.Getpid())
	return g
}

// Cgroup is the top-level cgroup in which this process is protected, "" for none.
func (g *Guard) Cgroup() string { return g.cgroup }

// Keep locks the pages of the program in memory that rehearse touches. Those of
// the garbage collector and of a log message belong to them: a decision without
// free memory may need both.
func (g *Guard) Keep(rehearse func()) {
	locked, err := KeepRehearsed(func() {
		rehearse()
		runtime.GC()
		g.log.Info("rehearsed an eviction")
	})
	g.warn("agent", os.Getpid(), err)
	g.log.Debug("locked the code of an eviction in memory", "bytes", locked)
}

// RuntimeConnected protects the process that listens at the runtime's socket. The
// protection by systemd, of both processes, is set by a goroutine of its own:
// systemd may be busy.
func (g *Guard) RuntimeConnected() {
	pid, err := Listener(context.Background(), g.socket)
	if err != nil {
		g.log.Warn("the container runtime is not protected from pods that use up the memory", "error", err)
	} else {
		g.warn("container runtime", pid, g.config.Process(pid))
	}
	if !cgroups.SystemdRuns("") {
		return
	}
	go func() {
		g.warn("agent", os.Getpid(), g.config.ShieldAgent(os.Getpid()))
		if err == nil {
			g.warn("container runtime", pid, g.config.ShieldRuntime(pid))
		}
	}()
}

func (g *Guard) warn(what string, pid int, err error) {
	if err != nil {
		g.log.Warn("a process is not protected from pods that use up the memory", "process", what, "pid", pid, "error", err)
	}
}
