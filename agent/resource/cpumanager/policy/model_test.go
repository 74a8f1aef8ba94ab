package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s.io/utils/cpuset"
)

func randomPod(r *rand.Rand, uid string) *v1.Pod {
	cpus := []string{"1", "1", "2", "3", "4", "500m", "1500m"}
	some := func(kind string, n int, of func(v1.Container) v1.Container) (all []v1.Container) {
		for i := range n {
			all = append(all, of(asking(kind+strconv.Itoa(i), cpus[r.IntN(len(cpus))])))
		}
		return all
	}
	as := func(c v1.Container) v1.Container {
		if r.IntN(2) == 0 {
			return sidecar(c)
		}
		return c
	}
	return withInit(podOf(types.UID(uid), some("main", 1+r.IntN(3), func(c v1.Container) v1.Container { return c })...),
		some("init", r.IntN(4), as)...)
}

func TestNothingIsEverHeldTwice(t *testing.T) {
	tops := []Topology{board(t, "0-3"), board(t, "1,3-9"), paired(4), paired(8)}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		top := tops[r.IntN(len(tops))]
		var reserved Set
		for _, cpu := range top.CPUs.List() {
			if reserved.IsEmpty() || r.IntN(6) == 0 {
				reserved = reserved.Union(cpuset.New(cpu))
			}
		}
		o := Options{FullPhysicalCPUs: r.IntN(3) == 0}
		p, err := New(top, reserved, o)
		if err != nil {
			t.Fatal(err)
		}
		pods := map[string]*v1.Pod{}
		for step := range 120 {
			switch r.IntN(5) {
			case 0, 1:
				in := randomPod(r, fmt.Sprint("p", step))
				before := holds(p)
				if err := p.AllocatePod(in); err == nil {
					pods[string(in.UID)] = in
					wants(t, p, in)
				} else if !maps.Equal(before, holds(p)) {
					t.Fatalf("seed %d: a refused pod changed something", seed)
				}
			case 2, 3:
				for uid := range pods {
					p.Release(types.UID(uid))
					delete(pods, uid)
					break
				}
			case 4:
				p = again(t, p, top, o, pods)
			}
			noneMeet(t, p, pods)
		}
	}
}

// wants checks that each container of an admitted pod has the CPUs that it requests.
func wants(t *testing.T, p *Policy, in *v1.Pod) {
	t.Helper()
	for _, c := range slices.Concat(in.Spec.InitContainers, in.Spec.Containers) {
		s, has := p.Exclusive(in.UID, c.Name)
		if asked := RequestedCPUs(in, &c); int64(s.Size()) != asked || has != (asked > 0) {
			t.Fatalf("%s/%s asks for %d and has %s", in.UID, c.Name, asked, s)
		}
	}
}

// again returns the policy after a restart of the agent, which must be equal: from
// the saved state, or without one from the cpusets of all containers.
func again(t *testing.T, p *Policy, top Topology, o Options, pods map[string]*v1.Pod) *Policy {
	t.Helper()
	data, err := p.Saved().Encode()
	if err != nil {
		t.Fatal(err)
	}
	saved, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, withState := range []bool{true, false} {
		var live []LivePod
		for uid, in := range pods {
			l := LivePod{UID: types.UID(uid), Pod: in}
			if !withState {
				l.Running = p.assigned[l.UID]
			}
			live = append(live, l)
		}
		if !withState {
			saved = Saved{}
		}
		r, err := Restore(saved, top, p.reserved, o, live)
		if err != nil || len(r.Changed)+len(r.Dropped) > 0 || withState && len(r.Adopted) > 0 {
			t.Fatalf("restore: %v, %+v", err, r)
		}
		if !maps.Equal(holds(r.Policy), holds(p)) {
			t.Fatalf("restored %v of %v", holds(r.Policy), holds(p))
		}
		p = r.Policy
	}
	return p
}
