package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/probe"
)

// inMemory is a folder of a tmpfs, which goes with the test.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tinylet-test-")
	if err != nil {
		t.Skipf("no folder in memory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

const probedPods = `
apiVersion: v1
kind: Pod
metadata: {name: long}
spec:
  containers:
  - name: main
    image: "localhost/busybox:1"
    command: [sh, -c, sleep infinity]
    startupProbe: {exec: {command: [/started]}, periodSeconds: 10, failureThreshold: 30}
    readinessProbe: {exec: {command: [/ready]}, periodSeconds: 10}
---
apiVersion: v1
kind: Pod
metadata: {name: never}
spec:
  containers:
  - name: main
    image: "localhost/busybox:1"
    command: [sh, -c, sleep infinity]
    readinessProbe: {exec: {command: [/never]}, periodSeconds: 10}
---
apiVersion: v1
kind: Pod
metadata: {name: slow}
spec:
  containers:
  - name: main
    image: "localhost/busybox:1"
    command: [sh, -c, sleep infinity]
    readinessProbe: {exec: {command: [/slow]}, periodSeconds: 30, timeoutSeconds: 20}
`

// seenReady is what was reported of a pod.
type seenReady struct{ started, ready bool }

// shortName is a static pod's name without that of its node.
func shortName(p *v1.Pod) string { return strings.TrimSuffix(p.Name, "-board") }

// reported notes each observed status of the first container of each pod until
// the lab is killed.
func (l *lab) reported() (all func() map[string][]seenReady) {
	seen := map[string][]seenReady{}
	changed := make(chan struct{}, 1)
	statuses := l.agent.statuses
	cancel := statuses.Notify(changed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range changed {
			for _, e := range statuses.List() {
				if !e.Observed || len(e.Status.ContainerStatuses) == 0 {
					continue
				}
				c := e.Status.ContainerStatuses[0]
				now := seenReady{started: c.Started != nil && *c.Started, ready: c.Ready}
				name := shortName(e.Pod)
				if s := seen[name]; len(s) == 0 || s[len(s)-1] != now {
					seen[name] = append(s, now)
				}
			}
		}
	}()
	return func() map[string][]seenReady {
		cancel()
		close(changed)
		<-ended
		return seen
	}
}

// TestAgentRestartKeepsReadiness checks that no pod is reported ready or unready
// over a restart of the agent because of it.
func TestAgentRestartKeepsReadiness(t *testing.T) {
	for _, api := range []bool{false, true} {
		t.Run(map[bool]string{false: "static pods", true: "pods of the API server"}[api], func(t *testing.T) {
			memory := inMemory(t)
			bubble(t, func(t *testing.T, l *lab) {
				l.api = api
				l.cfg.Tinylet.SocketPath = filepath.Join(memory, "run", "socket")
				var killed atomic.Bool
				l.prepare = func(p *agent) {
					p.probes.Uptime = func() time.Duration { return time.Hour + l.since() }
					save := p.probes.SaveState
					p.probes.SaveState = func(data []byte) error {
						if killed.Load() {
							return errors.New("no agent runs")
						}
						return save(data)
					}
				}
				l.runtime.SetExec("/started", fake.Exec{})
				l.runtime.SetExec("/ready", fake.Exec{})
				l.runtime.SetExec("/never", fake.Exec{Code: 1})
				l.runtime.SetExec("/slow", fake.Exec{Delay: 8 * time.Second})
				pods := parse(t, probedPods)
				if api {
					for _, p := range pods {
						p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceAPI}
					}
				}
				l.want(pods...)
				l.start()
				l.settle(125 * time.Second) // in the middle of a slow probe
				want := map[string]seenReady{"long": {true, true}, "never": {true, false}, "slow": {true, true}}
				for _, p := range pods {
					c := l.status(p.UID).ContainerStatuses[0]
					if got := (seenReady{*c.Started, c.Ready}); got != want[shortName(p)] {
						t.Fatalf("before the restart, %s: %+v", p.Name, got)
					}
				}
				l.runtime.SetExec("/started", fake.Exec{Code: 1}) // is not asked again
				for _, away := range []time.Duration{0, 7 * time.Second, 10 * time.Minute} {
					killed.Store(true)
					l.kill()
					l.settle(away)
					killed.Store(false)
					l.start()
					all := l.reported()
					l.settle(time.Minute)
					for name, got := range all() {
						if len(got) != 1 || got[0] != want[name] {
							t.Errorf("away for %v, %s was reported %+v, want only %+v", away, name, got, want[name])
						}
					}
				}
				info, err := os.Stat(filepath.Join(memory, "run", probe.StateFile))
				if err != nil || info.Mode() != 0o600 {
					t.Errorf("saved state: %v, %v", info, err)
				}
			})
		})
	}
}

// TestRebootForgetsReadiness checks that containers of another boot begin anew.
func TestRebootForgetsReadiness(t *testing.T) {
	memory := inMemory(t)
	bubble(t, func(t *testing.T, l *lab) {
		l.cfg.Tinylet.SocketPath = filepath.Join(memory, "socket")
		l.runtime.SetExec("/never", fake.Exec{})
		never := parse(t, probedPods)[1]
		l.want(never)
		l.start()
		l.settle(time.Minute)
		if !l.status(never.UID).ContainerStatuses[0].Ready {
			t.Fatal("not ready before the reboot")
		}
		l.kill()
		l.runtime.SetExec("/never", fake.Exec{Code: 1})
		l.runtime.Reboot()
		l.start()
		all := l.reported()
		l.settle(time.Minute)
		for _, got := range all()["never"] {
			if got.ready {
				t.Error("reported ready after a reboot, before its probe has answered")
			}
		}
	})
}
