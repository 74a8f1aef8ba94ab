package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/container/reaper"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups/cgroupstest"
)

// What the runtime holds for running of a pod whose manifest went while no agent
// ran is looked for like the rest, and the runtime is asked for nothing else.
func TestOrphansAreLookedFor(t *testing.T) {
	h, tree := cgroupstest.New(t)
	bubble(t, func(t *testing.T, l *lab) {
		gone, stays := shell(t, "gone", "Always", "sleep infinity"), shell(t, "stays", "Always", "sleep infinity")
		gone.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m")}
		l.want(gone, stays)
		l.start()
		l.settle(10 * time.Second)
		l.kill()
		ids := l.running()
		mend := l.runtime.Inject("StopContainer", fake.Fault{Err: errors.New("it has no record of it")})
		l.want(stays)
		l.start()
		l.settle(10 * time.Second)
		n, err := l.agent.syncer.Node(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		group := criconfig.PodCgroup(gone, n) // a burstable one, which nobody knows
		h.Uses(group, 0, 0)
		orphans := &reaper.Orphans{Runtime: l.runtime, Tree: tree, Node: l.agent.node.Refresh, Pods: l.agent.evictable.UnknownPods}
		got, err := orphans.List(t.Context())
		id := ids["gone-board/c0"]
		want := []reaper.Container{{Ref: pod.RefOf(gone), Name: "c0", ID: id, Cgroup: criconfig.ContainerCgroup(group, id, n)}}
		for _, s := range l.runtime.AllSandboxes() {
			if s.GetMetadata().GetUid() == string(gone.UID) {
				want = append(want, reaper.Container{Ref: pod.RefOf(gone), ID: s.GetId(), Cgroup: criconfig.ContainerCgroup(group, s.GetId(), n)})
			}
		}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
		for _, call := range []string{"ListContainers", "ListPodSandbox"} {
			asked := l.runtime.Inject(call, fake.Fault{Err: errors.New("it does not answer")})
			if got, err := orphans.List(t.Context()); err == nil {
				t.Errorf("a runtime that does not answer %s: %v", call, got)
			}
			asked()
		}
		mend()
		l.settle(time.Minute)
		before := l.runtime.Count("ListContainers")
		if got, err := orphans.List(t.Context()); len(got) > 0 || err != nil || l.runtime.Count("ListContainers") != before {
			t.Errorf("once it is gone: %v, %v", got, err)
		}
	})
}
