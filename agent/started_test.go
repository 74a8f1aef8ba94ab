package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/container/logrotate"
	"github.com/tinylet/tinylet/agent/container/reaper"
	"github.com/tinylet/tinylet/agent/server/streaming"
)

// TestStartedContainerIsSeenBeforeTheStatus checks that all who are woken by a
// container's start find it, though the pod's status tells of it only minutes
// later, when the next container's image was pulled.
func TestStartedContainerIsSeenBeforeTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.Inject("PullImage", fake.Fault{Delay: 10 * time.Minute})
		p := shell(t, "two", "Always", "sleep infinity", "sleep infinity")
		p.Spec.Containers[1].Image = "localhost/late:1"
		woken := make(chan struct{}, 1)
		found := time.Duration(-1)
		l.prepare = func(a *agent) {
			cancel := a.statuses.Notify(woken)
			l.done.Go(func() {
				defer cancel()
				for range woken { // as the rotation of logs does
					if logs := logrotate.LogsOf(a.statuses.List(), a.node.Peek); len(logs) > 0 && found < 0 {
						found = l.since()
						if want := filepath.Join(l.cfg.Paths.PodLogs, "default_two-board_"+string(p.UID), "c0", "0.log"); logs[0].Path != want {
							t.Errorf("its log is %q, want %q", logs[0].Path, want)
						}
					}
				}
			})
		}
		stop := func() { close(woken) }
		l.want(p)
		l.start()
		l.settle(time.Minute)
		id := l.running()["two-board/c0"]
		st := l.status(p.UID)
		if id == "" || len(st.ContainerStatuses) > 0 && stateOf(st, "c0") == "running" {
			t.Fatalf("the status is not late: %q, %+v", id, st.ContainerStatuses)
		}
		if found < 0 || found > 30*time.Second {
			t.Errorf("the container was listed after %v, want at its start", found)
		}
		if all := reaper.RunningContainers(l.agent.statuses.List(), l.agent.node.Peek); len(all) != 2 || all[1].ID != id || all[0].ID != l.agent.statuses.List()[0].Sandbox.ID {
			t.Errorf("running: %+v", all)
		}
		if got, err := (&streaming.Finder{Statuses: l.agent.statuses}).Find(t.Context(), streaming.Name{Namespace: "default", Pod: p.Name, Container: "c0"}); err != nil || got.ContainerID != id {
			t.Errorf("a session finds %+v, %v", got, err)
		}
		if got, ok := l.agent.statuses.RunningContainer(p.UID, "c0"); !ok || got != id {
			t.Errorf("kubectl logs finds %q, %v", got, ok)
		}
		stop()
	})
}
