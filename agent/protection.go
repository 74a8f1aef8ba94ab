package agent

import (
	"context"
	"log/slog"
	"os"
	"runtime"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/resource/selfprotect"
	"github.com/tinylet/tinylet/cgroups"
)

// protection keeps the agent and its runtime from being starved or killed for
// the pods' sake.
type protection struct {
	selfprotect.Config
	socket string // the runtime's
	group  string // in which this process is protected; "" is none
	log    *slog.Logger
}

// newProtection protects this process at once; nil where the configuration
// wants none.
func newProtection(cfg *config.Config, tree *cgroups.Tree, log *slog.Logger) *protection {
	if !*cfg.Tinylet.OwnCgroup {
		return nil
	}
	p := &protection{log: log, Config: selfprotect.Config{
		Tree: tree, Memory: machine.Memory(machine.Roots{}), OOMScoreAdj: int(*cfg.Kubelet.OOMScoreAdj),
		Unit: func(path string, r cgroups.Resources) error {
			units := tree.NewSlices("")
			defer units.Close()
			return units.Set(path, r)
		},
	}}
	p.socket, _ = cri.SocketPath(cfg.Kubelet.ContainerRuntimeEndpoint) // the driver has judged it
	p.warn("agent", os.Getpid(), p.Process(os.Getpid()))
	p.group = p.Top(os.Getpid())
	return p
}

// keep has what a rehearsal of an eviction uses of the program stay in memory:
// also the garbage collector and a line of the log, since a decision may need
// both.
func (p *protection) keep(rehearse func()) {
	kept, err := selfprotect.KeepRehearsed(func() {
		rehearse()
		runtime.GC()
		p.log.Info("rehearsed an eviction")
	})
	p.warn("agent", os.Getpid(), err)
	p.log.Debug("locked the code of an eviction in memory", "bytes", kept)
}

// runtime protects who listens at the runtime's socket, and what systemd
// protects for it and for this process: systemd may be busy, and nobody waits
// for it.
func (p *protection) runtime() {
	pid, err := selfprotect.Listener(context.Background(), p.socket)
	if err != nil {
		p.log.Warn("the container runtime is not protected from pods that use up the memory", "error", err)
	} else {
		p.warn("container runtime", pid, p.Process(pid))
	}
	if !cgroups.SystemdRuns("") {
		return
	}
	go func() {
		p.warn("agent", os.Getpid(), p.ShieldAgent(os.Getpid()))
		if err == nil {
			p.warn("container runtime", pid, p.ShieldRuntime(pid))
		}
	}()
}

func (p *protection) warn(what string, pid int, err error) {
	if err != nil {
		p.log.Warn("a process is not protected from pods that use up the memory", "process", what, "pid", pid, "error", err)
	}
}
