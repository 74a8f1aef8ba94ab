package oom

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTake(t *testing.T) {
	allow := cmp.AllowUnexported(kill{})
	type step struct {
		pod   counts
		a     counts
		kills []kill
		loose uint64
	}
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"nothing", []step{{}}},
		{"limit that was met without a kill", []step{{pod: counts{oom: 1}, a: counts{oom: 1}}}},
		{"one after the other", []step{
			{pod: counts{1, 1, 0}, a: counts{1, 1, 0}, kills: []kill{{id: "a", n: 1, cause: ofContainer}}},
			{pod: counts{2, 3, 1}, a: counts{2, 3, 1}, kills: []kill{{id: "a", n: 2, whole: true, cause: ofContainer}}},
		}},
		{"the rest of a group", []step{
			{pod: counts{1, 1, 0}, a: counts{1, 1, 0}, kills: []kill{{id: "a", n: 1, cause: ofContainer}}},
			{pod: counts{1, 3, 1}, a: counts{1, 3, 1}, kills: []kill{{id: "a", n: 2, whole: true, repeated: true, cause: ofContainer}}},
		}},
		{"the rest of a group, for the pod's limit", []step{
			{pod: counts{1, 1, 0}, a: counts{0, 1, 1}, kills: []kill{{id: "a", n: 1, whole: true, cause: ofPod}}},
			{pod: counts{1, 3, 1}, a: counts{0, 3, 1}, kills: []kill{{id: "a", n: 2, repeated: true, cause: ofPod}}},
		}},
		{"the rest of a group, for the system", []step{
			{pod: counts{0, 1, 0}, a: counts{0, 1, 0}, kills: []kill{{id: "a", n: 1, cause: ofNode}}},
			{pod: counts{0, 3, 1}, a: counts{0, 3, 1}, kills: []kill{{id: "a", n: 2, whole: true, repeated: true, cause: ofNode}}},
		}},
		{"the container's file was read after the next kill", []step{
			{pod: counts{1, 1, 0}, a: counts{2, 2, 0}, kills: []kill{{id: "a", n: 2, cause: ofContainer}}},
			{pod: counts{2, 2, 0}, a: counts{2, 2, 0}},
		}},
		{"the system's", []step{{pod: counts{0, 1, 0}, a: counts{0, 1, 0}, kills: []kill{{id: "a", n: 1, cause: ofNode}}}}},
		{"the pod's", []step{{pod: counts{1, 1, 0}, a: counts{0, 1, 0}, kills: []kill{{id: "a", n: 1, cause: ofPod}}}}},
		{"loose", []step{{pod: counts{1, 2, 0}, loose: 2}, {pod: counts{1, 2, 0}, loose: 2}}},
		{"made anew", []step{
			{pod: counts{5, 5, 0}, a: counts{5, 5, 0}, kills: []kill{{id: "a", n: 5, cause: ofContainer}}},
			{pod: counts{1, 1, 0}, a: counts{1, 1, 0}, kills: []kill{{id: "a", n: 1, cause: ofContainer}}},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var l podCounters
			for i, s := range test.steps {
				now := reading{at: time.Unix(int64(i+1)*100, 0), pod: s.pod}
				if s.a != (counts{}) {
					now.containers = map[string]counts{"a": s.a}
				}
				if diff := cmp.Diff(s.kills, l.update(now), allow); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
				if l.unattributed() != s.loose {
					t.Errorf("step %d: %d loose, want %d", i, l.unattributed(), s.loose)
				}
			}
		})
	}
}

// Whatever is visible of the cgroups, each kill is reported exactly once.
func TestEveryKillIsToldOnce(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		var l podCounters
		var pod counts
		alive := map[string]counts{}
		killed, told := uint64(0), uint64(0)
		var runs [4]int // how often each was started
		for step := range 60 {
			slot := r.IntN(len(runs))
			id := fmt.Sprint("c", slot, "-", runs[slot])
			switch r.IntN(4) {
			case 0, 1:
				c := alive[id]
				c.kills++
				c.oom++
				pod.kills++
				pod.oom++
				killed++
				alive[id] = c
			case 2:
				delete(alive, id)
				runs[slot]++
				if r.IntN(2) == 0 {
					if l.classified == nil {
						l.classified = map[string]bool{}
					}
					l.classified[id] = true
				}
			case 3:
				now := reading{pod: pod, containers: map[string]counts{}}
				for id, c := range alive {
					now.containers[id] = c
				}
				for _, k := range l.update(now) {
					told += k.n
				}
				if l.unattributed() > 0 && r.IntN(2) == 0 {
					told += l.attribute(fmt.Sprint("ended", step), true).n
				}
				if told+l.unattributed() != killed {
					t.Fatalf("seed %d: %d killed, %d told, %d loose", seed, killed, told, l.unattributed())
				}
			}
		}
	}
}

func FuzzParseKills(f *testing.F) {
	f.Add([]byte("nr_free_pages 1\noom_kill 3\n"))
	f.Add([]byte("oom_kill 18446744073709551616\n"))
	f.Add([]byte("oom_kill"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, ok := parseKills(data); !ok && n != 0 && n != 1<<64-1 {
			t.Errorf("%q: %d and not ok", data, n)
		}
	})
}
