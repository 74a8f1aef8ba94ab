package agent

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/resource/oom"
	"github.com/tinylet/tinylet/cgroups/cgroupstest"
)

// TestAnEndForMemoryThatTheRuntimeMissed has the kernel kill a container while
// the runtime tells nothing but that it was killed.
func TestAnEndForMemoryThatTheRuntimeMissed(t *testing.T) {
	h, tree := cgroupstest.New(t)
	events := func(path, text string) {
		h.Write(path, map[string]string{"cgroup.controllers": "memory\n", "memory.events": text})
	}
	events("/kubepods", "oom 0\noom_kill 0\n")
	h.Write("/", map[string]string{"vmstat": "oom_kill 0\n"})
	bubble(t, func(t *testing.T, l *lab) {
		p, node := shell(t, "web", "Always", "sleep infinity"), &criconfig.Node{}
		l.prepare = func(a *agent) {
			a.syncer.OOM = oom.New(oom.Config{
				Tree: tree, Node: func() (*criconfig.Node, bool) { return node, true }, Wake: a.wakeups.Wake, Events: a.events,
				Pods: a.statuses.List, VMStat: h.Root + "/vmstat", Log: slog.New(slog.DiscardHandler),
			})
		}
		l.want(p)
		l.start()
		l.settle(5 * time.Second)
		id := l.running()["web-board/c0"]
		if id == "" {
			t.Fatal("the container does not run")
		}
		pod := criconfig.PodCgroup(p, node)
		events("/kubepods", "oom 1\noom_kill 1\n")
		events(pod, "oom 1\noom_kill 1\n")
		events(pod+"/"+id, "oom 1\noom_kill 1\n")
		l.runtime.ExitContainer(id, 137)
		l.settle(5 * time.Second)
		s := l.status(p.UID).ContainerStatuses[0]
		if s.RestartCount != 1 && s.State.Waiting == nil {
			t.Errorf("it was not started again: %+v", s)
		}
		last := s.LastTerminationState.Terminated
		if last == nil || last.Reason != oom.Reason || last.ExitCode != 137 {
			t.Errorf("its end: %+v", s)
		}
		told := slices.ContainsFunc(l.agent.events.Recent(), func(e event.Event) bool {
			return e.Reason == oom.Reason && e.Type == v1.EventTypeWarning && strings.Contains(e.Message, "a process of container c0 was killed")
		})
		if !told {
			t.Errorf("events: %+v", l.agent.events.Recent())
		}
	})
}
