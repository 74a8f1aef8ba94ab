package policy

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"k8s.io/utils/cpuset"
)

func list(t testing.TB, text string) Set {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// board returns a topology with one thread per core.
func board(t testing.TB, cpus string) Topology { return Topology{CPUs: list(t, cpus)} }

// paired returns a topology of n cores with two threads each: core i has CPUs i and
// i+n.
func paired(n int) Topology {
	top := Topology{Core: map[int]int{}}
	for i := range n {
		top.CPUs = top.CPUs.Union(cpuset.New(i, i+n))
		top.Core[i], top.Core[i+n] = i, i
	}
	return top
}

func policy(t testing.TB, top Topology, reserved string, o Options) *Policy {
	t.Helper()
	p, err := New(top, list(t, reserved), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// asking returns a container whose requests equal its limits.
func asking(name, cpu string) v1.Container {
	all := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("16Mi")}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: all, Requests: all.DeepCopy()}}
}

func sidecar(c v1.Container) v1.Container {
	always := v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func podOf(uid types.UID, main ...v1.Container) *v1.Pod {
	p := &v1.Pod{}
	p.UID = uid
	p.Spec.Containers = main
	return p
}

func withInit(p *v1.Pod, init ...v1.Container) *v1.Pod {
	p.Spec.InitContainers = init
	return p
}

// holds returns a policy's assignments as text.
func holds(p *Policy) map[string]string {
	out := map[string]string{}
	for uid, containers := range p.assigned {
		for name, s := range containers {
			out[string(uid)+"/"+name] = s.String()
		}
	}
	return out
}

// noneMeet checks the invariants: no reserved CPU is assigned, the assigned CPUs and
// the pool are all CPUs, and containers that can run at the same time share no
// exclusive CPU.
func noneMeet(t *testing.T, p *Policy, pods map[string]*v1.Pod) {
	t.Helper()
	type owned struct {
		uid  types.UID
		name string
		cpus Set
	}
	var all []owned
	for uid, containers := range p.assigned {
		for name, s := range containers {
			all = append(all, owned{uid, name, s})
		}
	}
	var held Set
	for i, a := range all {
		held = held.Union(a.cpus)
		if a.cpus.IsEmpty() || !a.cpus.Intersection(p.reserved).IsEmpty() || !a.cpus.Intersection(p.SharedPool()).IsEmpty() {
			t.Fatalf("%s/%s has %s: reserved %s, pool %s", a.uid, a.name, a.cpus, p.reserved, p.SharedPool())
		}
		for _, b := range all[:i] {
			together := a.uid != b.uid || canOverlap(&pods[string(a.uid)].Spec, a.name, b.name)
			if both := a.cpus.Intersection(b.cpus); together && !both.IsEmpty() {
				t.Fatalf("%s/%s and %s/%s both have %s", a.uid, a.name, b.uid, b.name, both)
			}
		}
	}
	if !Equal(p.SharedPool().Union(held), p.cpus) || !p.reserved.IsSubsetOf(p.SharedPool()) || !Equal(p.Free().Union(p.reserved), p.SharedPool()) {
		t.Fatalf("pool %s, held %s, reserved %s, all %s", p.SharedPool(), held, p.reserved, p.cpus)
	}
}
