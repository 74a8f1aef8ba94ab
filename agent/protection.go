package agent

import (
	"context"
	"log/slog"
	"os"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/node"
	"github.com/tinylet/tinylet/agent/protect"
	"github.com/tinylet/tinylet/cgroups"
)

// protection keeps the agent and its runtime from being starved or killed for
// the pods' sake.
type protection struct {
	protect.Config
	socket string // the runtime's
	log    *slog.Logger
}

// newProtection protects this process at once; nil where the configuration
// wants none.
func newProtection(cfg *config.Config, tree *cgroups.Tree, log *slog.Logger) *protection {
	if !*cfg.Tinylet.OwnCgroup {
		return nil
	}
	p := &protection{log: log, Config: protect.Config{
		Tree: tree, Memory: node.Memory(node.Roots{}), OOMScoreAdj: int(*cfg.Kubelet.OOMScoreAdj),
	}}
	p.socket, _ = cri.SocketPath(cfg.Kubelet.ContainerRuntimeEndpoint) // the driver has judged it
	p.process(os.Getpid(), "agent")
	return p
}

// runtime protects who listens at the runtime's socket.
func (p *protection) runtime() {
	pid, err := protect.Listener(context.Background(), p.socket)
	if err != nil {
		p.log.Warn("the container runtime is not protected from pods that use up the memory", "error", err)
		return
	}
	p.process(pid, "container runtime")
}

func (p *protection) process(pid int, what string) {
	if err := p.Process(pid); err != nil {
		p.log.Warn("a process is not protected from pods that use up the memory", "process", what, "pid", pid, "error", err)
	}
}
