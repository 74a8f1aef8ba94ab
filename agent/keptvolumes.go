package agent

import (
	"log/slog"
	"slices"

	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/volume"
)

// keptVolumes is what somebody has to do about the volumes of ended pods that
// a kubelet set up with plugins that this agent does not have.
func (p *parts) keptVolumes(log *slog.Logger) []string {
	all, err := p.volumes.AllForeign()
	if err != nil {
		log.Warn("volumes of other plugins are not known", "error", err)
		return nil
	}
	var todo []string
	for len(all) > 0 {
		uid := all[0].Pod
		n := slices.IndexFunc(all, func(f volume.Foreign) bool { return f.Pod != uid })
		if n < 0 {
			n = len(all)
		}
		if state, known := p.workers.State(uid); !known || state == podworker.Terminated {
			todo = append(todo, p.volumes.ActionRequired(uid, all[:n]))
		}
		all = all[n:]
	}
	return todo
}
