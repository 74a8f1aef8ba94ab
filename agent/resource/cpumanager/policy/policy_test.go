package policy

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAllocatePod(t *testing.T) {
	burstable := podOf("p", asking("app", "2"))
	delete(burstable.Spec.Containers[0].Resources.Limits, v1.ResourceMemory)
	unwritten := podOf("p", asking("app", "2"))
	unwritten.Spec.Containers[0].Resources.Requests = nil
	whole := podOf("p", asking("app", "2"))
	whole.Spec.Resources = &whole.Spec.Containers[0].Resources

	for _, row := range []struct {
		name string
		pod  *v1.Pod
		want map[string]string
		pool string
	}{
		{"one", podOf("p", asking("app", "2")), map[string]string{"p/app": "1-2"}, "0,3-7"},
		{"2000m are two", podOf("p", asking("app", "2000m")), map[string]string{"p/app": "1-2"}, "0,3-7"},
		{"a fraction", podOf("p", asking("app", "1500m")), nil, "0-7"},
		{"less than one", podOf("p", asking("app", "500m")), nil, "0-7"},
		{"one of two", podOf("p", asking("a", "100m"), asking("b", "1")), map[string]string{"p/b": "1"}, "0,2-7"},
		{"a burstable pod", burstable, nil, "0-7"},
		{"limits alone", unwritten, map[string]string{"p/app": "1-2"}, "0,3-7"},
		{"a pod with resources of its own", whole, nil, "0-7"},
		{"all", podOf("p", asking("app", "7")), map[string]string{"p/app": "1-7"}, "0"},
		{
			"an init container's CPUs go to the next and to the main ones",
			withInit(podOf("p", asking("a", "1"), asking("b", "2")), asking("i", "2"), asking("j", "3")),
			map[string]string{"p/i": "1-2", "p/j": "1-3", "p/a": "1", "p/b": "2-3"}, "0,4-7",
		},
		{
			"a sidecar keeps what it has",
			withInit(podOf("p", asking("a", "2")), asking("i", "2"), sidecar(asking("s", "1")), asking("j", "2")),
			map[string]string{"p/i": "1-2", "p/s": "1", "p/j": "2-3", "p/a": "2-3"}, "0,4-7",
		},
		{
			"a sidecar goes first",
			withInit(podOf("p", asking("a", "1")), sidecar(asking("s", "2")), asking("i", "3")),
			map[string]string{"p/s": "1-2", "p/i": "3-5", "p/a": "3"}, "0,6-7",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := policy(t, board(t, "0-7"), "0", Options{})
			for range 2 { // the second time changes nothing
				if err := p.AllocatePod(row.pod); err != nil {
					t.Fatal(err)
				}
				if got := holds(p); !maps.Equal(got, row.want) {
					t.Fatalf("holds %v, want %v", got, row.want)
				}
				if got := p.SharedPool().String(); got != row.pool {
					t.Fatalf("pool %s, want %s", got, row.pool)
				}
			}
			freed := p.Release("p")
			if !Equal(freed.Union(list(t, row.pool)), list(t, "0-7")) || !Equal(p.SharedPool(), list(t, "0-7")) || len(holds(p)) != 0 {
				t.Fatalf("freed %s, pool %s, holds %v", freed, p.SharedPool(), holds(p))
			}
		})
	}
}

func TestAllocateOutOfOrder(t *testing.T) {
	in := withInit(podOf("p", asking("a", "1")), asking("i", "2"), sidecar(asking("s", "1")), asking("j", "2"))
	for _, order := range [][]string{{"a", "s", "j", "i"}, {"i", "a", "j", "s"}, {"j", "i", "s", "a"}} {
		p := policy(t, board(t, "0-7"), "0", Options{})
		for _, name := range order {
			for i := range in.Spec.InitContainers {
				if c := &in.Spec.InitContainers[i]; c.Name == name {
					if err := p.Allocate(in, c); err != nil {
						t.Fatal(err)
					}
				}
			}
			if name == "a" {
				if err := p.Allocate(in, &in.Spec.Containers[0]); err != nil {
					t.Fatal(err)
				}
			}
			noneMeet(t, p, map[string]*v1.Pod{"p": in})
		}
	}
}

func TestRefusal(t *testing.T) {
	p := policy(t, board(t, "0-3"), "0", Options{})
	if err := p.AllocatePod(podOf("old", asking("app", "2"))); err != nil {
		t.Fatal(err)
	}
	before := holds(p)
	for _, row := range []struct {
		pod  *v1.Pod
		want string
	}{
		{podOf("new", asking("app", "2")), `container "app" requests 2 exclusive CPUs, and 1 (3) is free: of CPUs 0-3, 0 is reserved, and other containers hold 1-2; request fewer`},
		{podOf("new", asking("a", "1"), asking("b", "1")), `container "b" requests 1 exclusive CPUs, and none is free`},
		{podOf("new", asking("app", "5000000000")), `requests 5000000000 exclusive CPUs`},
		{podOf("new", asking("app", "1000E")), `exclusive CPUs, and 1 (3) is free`},
	} {
		err := p.AllocatePod(row.pod)
		var refused *AdmissionError
		if !errors.As(err, &refused) || refused.Reason != ReasonUnexpected || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %s", err, row.want)
		}
		if got := holds(p); !maps.Equal(got, before) {
			t.Errorf("after a refusal %v, before %v", got, before)
		}
	}
}

func TestWholeCores(t *testing.T) {
	for _, row := range []struct {
		name, reserved string
		pods           []*v1.Pod
		want           map[string]string
		says           string
	}{
		{"cores", "0,4", []*v1.Pod{podOf("a", asking("c", "2")), podOf("b", asking("c", "4"))}, map[string]string{"a/c": "1,5", "b/c": "2-3,6-7"}, ""},
		{"half a core", "0,4", []*v1.Pod{podOf("a", asking("c", "3"))}, nil, "multiple of 2"},
		{"the other thread of a reserved one", "0", []*v1.Pod{podOf("a", asking("c", "6")), podOf("b", asking("c", "2"))}, map[string]string{"a/c": "1-3,5-7"}, "none is free as whole cores"},
		{
			"those of its init container", "0,4",
			[]*v1.Pod{withInit(podOf("a", asking("c", "6")), asking("i", "6"))},
			map[string]string{"a/i": "1-3,5-7", "a/c": "1-3,5-7"}, "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := policy(t, paired(4), row.reserved, Options{FullPhysicalCPUs: true})
			var err error
			for _, in := range row.pods {
				err = p.AllocatePod(in)
			}
			var refused *AdmissionError
			if row.says == "" && err != nil || row.says != "" && (!errors.As(err, &refused) ||
				refused.Reason != ReasonSMTAlignment || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("%v, want %q", err, row.says)
			}
			if got := holds(p); !maps.Equal(got, row.want) {
				t.Errorf("holds %v, want %v", got, row.want)
			}
			// Who has cores already may have them again, though none is free.
			if err := p.AllocatePod(row.pods[0]); row.want != nil && err != nil {
				t.Errorf("once more: %v", err)
			}
		})
	}
}

func TestNewNeedsReservedCPUs(t *testing.T) {
	for _, reserved := range []string{"", "4"} {
		if _, err := New(board(t, "0-3"), list(t, reserved), Options{}); err == nil {
			t.Errorf("%q is taken", reserved)
		}
	}
}

func TestChanges(t *testing.T) {
	p := policy(t, board(t, "0-3"), "0", Options{})
	if err := p.AllocatePod(podOf("a", asking("app", "1"))); err != nil {
		t.Fatal(err)
	}
	got := p.Changes([]Container{
		{"a", "app", list(t, "2")},
		{"a", "debugger", list(t, "0-3")},
		{"b", "app", Set{}},
		{"c", "app", list(t, "0,2-3")},
	})
	want := []Container{{"a", "debugger", list(t, "0,2-3")}, {"b", "app", list(t, "0,2-3")}, {"a", "app", list(t, "1")}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if !Equal(p.CPUs("a", "app"), list(t, "1")) || !Equal(p.CPUs("b", "app"), list(t, "0,2-3")) || !Equal(p.Free(), list(t, "2-3")) || !Equal(p.reserved, list(t, "0")) {
		t.Error("who has what is told wrong")
	}
	p.Release("a")
	if got := p.Changes([]Container{{"b", "app", list(t, "0,2-3")}}); len(got) != 1 || !Equal(got[0].CPUs, list(t, "0-3")) {
		t.Errorf("after the release: %v", got)
	}
}
