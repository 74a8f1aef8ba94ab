package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/manifest"
)

const busybox = "localhost/busybox:1"

// lab is one node: a runtime that lives on, and an agent that comes and goes.
type lab struct {
	t       *testing.T
	runtime *fake.Runtime
	cfg     *config.Config
	wanted  []*v1.Pod
	born    time.Time
	bootID  string // in place of the machine's, if not empty

	// api says that the pods are the API server's, and not of files.
	api bool
	// prepare, where there is one, is called with each agent before it starts.
	prepare func(*agent)

	agent *agent
	tell  func(pods []*v1.Pod) // as the agent's source, until stop
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// bubble runs a test on a fresh lab with virtual time.
func bubble(t *testing.T, test func(t *testing.T, l *lab)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, dir)
		test(t, l)
		l.kill()
	})
}

func newLab(t *testing.T, dir string) *lab {
	rt := fake.New(fake.Config{Timeout: 2 * time.Minute})
	rt.AddImage(busybox, fake.Program{})
	kubelet, tinylet := config.Default()
	none := ""
	kubelet.ResolverConfig = &none
	kubelet.StaticPodPath = dir + "/manifests" // the test speaks for this source
	tinylet.SocketPath = dir + "/socket"
	kubelet.EvictionHard = map[string]string{} // the machine that tests run on may be full
	return &lab{t: t, runtime: rt, born: time.Now(), cfg: &config.Config{
		Kubelet: kubelet, Tinylet: tinylet, NodeName: "board",
		Paths: config.Paths{Root: dir, Pods: dir + "/pods", PodLogs: dir + "/logs", ContainerLogs: dir + "/links"},
	}}
}

// start starts an agent that is told of the wanted pods by one source.
func (l *lab) start() {
	l.t.Helper()
	level := slog.LevelError
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	agent, err := assemble(environment{cfg: l.cfg, runtime: l.runtime, log: log})
	if err != nil {
		l.t.Fatal(err)
	}
	l.agent = agent
	if l.bootID != "" {
		agent.syncer.BootID = l.bootID
	}
	if l.prepare != nil {
		l.prepare(agent)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	l.stop = cancel
	l.tell = func(pods []*v1.Pod) {
		if l.api {
			agent.mux.Set(ctx, pod.SourceAPI, source.PodSet{Pods: pods})
			pods = nil
		}
		agent.mux.Set(ctx, pod.SourceFile, source.PodSet{Pods: pods})
	}
	l.done.Go(func() { _ = agent.pleg.Run(ctx) })
	l.done.Go(func() { _ = agent.loop.Run(ctx) })
	l.done.Go(func() { _ = agent.probes.Run(ctx) })
	for _, t := range evictionTasks(agent) {
		l.done.Go(func() { agent.supervisor.Run(ctx, &t) })
	}
	if agent.cpus != nil {
		l.done.Go(func() { _ = agent.cpus.Run(ctx) })
	}
	l.want(l.wanted...)
}

// evictionTasks are the tasks of the eviction manager.
func evictionTasks(a *agent) []health.Task {
	return slices.DeleteFunc(a.nodeTasks(), func(t health.Task) bool { return t.Name != "evictions" && t.Name != "storage-limits" })
}

// kill ends the agent at once, as far as the runtime can tell.
func (l *lab) kill() {
	if l.stop != nil {
		l.stop()
		l.done.Wait()
		l.stop = nil
	}
}

// want hands the pods to the agent as all that its source has.
func (l *lab) want(pods ...*v1.Pod) {
	l.wanted = pods
	if l.stop == nil {
		return
	}
	tell := l.tell
	l.done.Go(func() { tell(pods) })
}

// settle lets virtual time pass.
func (l *lab) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// since is how old the lab is.
func (l *lab) since() time.Duration { return time.Since(l.born) }

// parse makes static pods from a manifest, as the file source does.
func parse(t *testing.T, text string) []*v1.Pod {
	t.Helper()
	m := manifest.Parse([]byte(text), manifest.Origin{Source: pod.SourceFile, NodeName: "board"})
	if len(m.Problems) > 0 {
		t.Fatalf("manifest: %+v", m.Problems)
	}
	return m.Pods
}

// shell is a manifest of one pod with containers that run the given scripts.
func shell(t *testing.T, name, policy string, scripts ...string) *v1.Pod {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  restartPolicy: %s\n  terminationGracePeriodSeconds: 3\n  containers:\n", name, policy)
	for i, script := range scripts {
		fmt.Fprintf(&b, "  - {name: c%d, image: %q, command: [sh, -c, %q]}\n", i, busybox, script)
	}
	return parse(t, b.String())[0]
}

// status is what the agent says of a pod, "" phases for one it does not know.
func (l *lab) status(uid types.UID) v1.PodStatus {
	_, st, ok := l.agent.statuses.Get(uid)
	if !ok {
		return v1.PodStatus{}
	}
	return *st
}

// running is the IDs of the running containers by pod/container, and fails
// the test if one runs twice.
func (l *lab) running() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	for _, c := range l.runtime.AllContainers() {
		if c.GetState().String() != "CONTAINER_RUNNING" {
			continue
		}
		key := c.GetLabels()["io.kubernetes.pod.name"] + "/" + c.GetMetadata().GetName()
		if other, twice := out[key]; twice {
			l.t.Errorf("container %s runs twice: %s and %s", key, other, c.GetId())
		}
		out[key] = c.GetId()
	}
	return out
}

// objects counts what the runtime holds.
func (l *lab) objects() (sandboxes, containers int) {
	return len(l.runtime.AllSandboxes()), len(l.runtime.AllContainers())
}

// changes is how often the runtime was asked to change anything.
func (l *lab) changes() int {
	return l.runtime.Count("RunPodSandbox", "StopPodSandbox", "RemovePodSandbox",
		"CreateContainer", "StartContainer", "StopContainer", "RemoveContainer")
}

// reasons are the events' reasons for a pod, each once.
func (l *lab) reasons(name string) []string {
	var out []string
	for _, e := range l.agent.events.Recent() {
		if e.Pod.Name == name && !slices.Contains(out, e.Reason) {
			out = append(out, e.Reason)
		}
	}
	return out
}
