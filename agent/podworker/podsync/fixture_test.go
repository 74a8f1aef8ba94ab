package podsync

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker/handler"
	"github.com/tinylet/tinylet/agent/podworker/hook"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/probe"
	"github.com/tinylet/tinylet/agent/podworker/volume"
	"github.com/tinylet/tinylet/agent/resource/resize/checkpoint"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// bench is a Syncer on a runtime in memory, in virtual time.
type bench struct {
	*Syncer
	t   *testing.T
	rt  *hookedRuntime
	dir string // of the volumes
}

// hookedRuntime calls functions of the test before the runtime's methods.
type hookedRuntime struct {
	*fake.Runtime
	stopping func(id string, grace time.Duration)
	removing func(id string)
}

func (r *hookedRuntime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	if r.stopping != nil {
		r.stopping(id, grace)
	}
	return r.Runtime.StopContainer(ctx, id, grace)
}

func (r *hookedRuntime) RemoveContainer(ctx context.Context, id string) error {
	if r.removing != nil {
		r.removing(id)
	}
	return r.Runtime.RemoveContainer(ctx, id)
}

// onBench runs a test in a bubble. change, if it is not nil, changes the configuration.
func onBench(t *testing.T, change func(c *Config), test func(b *bench)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := &hookedRuntime{Runtime: fake.New(fake.Config{})}
		rt.AddImage("localhost/app:1", fake.Program{})
		log := slog.New(slog.DiscardHandler)
		events := event.NewRecorder(log)
		actions := handler.New(rt)
		node := &criconfig.Node{PodLogsDir: dir + "/logs"}
		b := &bench{t: t, rt: rt, dir: dir}
		c := Config{
			Runtime: rt, Images: image.NewPuller(image.Config{Images: rt, Events: events, Log: log}), Volumes: volume.New(dir),
			Objects: noObjects{}, Hooks: hook.New(actions, events), Statuses: podstatus.NewStore(), Events: events,
			Node:              func(context.Context) (*criconfig.Node, error) { return node, nil },
			PeekNode:          func() (*criconfig.Node, bool) { return node, true },
			AdmitNode:         func() *nodeinfo.Admission { return nil },
			Handler:           func(context.Context, *v1.Pod) (string, error) { return "", nil },
			RecursiveReadOnly: func(string) bool { return false },
			Wake:              func(types.UID) {}, HostIPs: func() []string { return nil },
			LogLinks: dir + "/links", BootID: "boot", Log: log,
		}
		c.Probes = probe.New(probe.Config{
			Actions: actions, Events: events, Log: log, BootID: c.BootID,
			ResultChanged: func(types.UID) {},
		})
		if change != nil {
			change(&c)
		}
		b.Syncer = New(quiet(dir, c))
		b.OnPodsDiscovered(nil)
		test(b)
	})
}

// quiet returns c for a node without pressure and resizes that does not shut down. dir has
// the allocations.
func quiet(dir string, c Config) Config {
	c.Allocations = checkpoint.Open(filepath.Join(dir, "allocations"), c.Log)
	c.Ready, c.ShuttingDown = func() bool { return true }, func() bool { return false }
	c.Pressure, c.PodAdded = func() evictionapi.Conditions { return evictionapi.Conditions{} }, func(*v1.Pod) {}
	return c
}

// noObjects is the reader of pods that refer to no objects.
type noObjects struct{ objects.Reader }

// podOn is a pod of the API server with one container, app, that runs until it is stopped.
func podOn(change func(p *v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid"},
		Spec: v1.PodSpec{
			HostNetwork: true, RestartPolicy: v1.RestartPolicyAlways,
			Containers: []v1.Container{{
				Name: "app", Image: "localhost/app:1", ImagePullPolicy: v1.PullIfNotPresent, Command: []string{"sleep", "100000"},
			}},
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

// runs syncs a new pod until its container runs, and returns the container's ID.
func (b *bench) runs(p *v1.Pod) (id string) {
	b.t.Helper()
	b.OnPodAdded(p)
	b.syncs(p)
	if id = b.rt.RunningContainer(string(p.UID), "app"); id == "" {
		b.t.Fatalf("the pod does not run: %v", b.warnings())
	}
	return id
}

func (b *bench) syncs(p *v1.Pod) (done bool) {
	b.t.Helper()
	result, err := b.Sync(b.t.Context(), p)
	if err != nil {
		b.t.Error(err)
	}
	return result.Done
}

// warnings are the reasons and messages of all Warning events.
func (b *bench) warnings() (out []string) {
	for _, e := range b.Events.Recent() {
		if e.Type == v1.EventTypeWarning {
			out = append(out, e.Reason+": "+e.Message)
		}
	}
	slices.Sort(out)
	return out
}

// isReady reports whether the stored status of a pod has the condition Ready.
func (b *bench) isReady(p *v1.Pod) bool {
	_, st, _ := b.Statuses.Get(p.UID)
	c := pod.FindCondition(st.Conditions, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}
