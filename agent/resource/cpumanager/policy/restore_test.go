package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func state(t *testing.T, policy, cpus, reserved string, held map[string]string) Saved {
	s := Saved{Policy: policy, CPUs: cpuList{list(t, cpus)}, Reserved: cpuList{list(t, reserved)}, Pods: map[types.UID]map[string]cpuList{}}
	for at, text := range held {
		uid, name, _ := strings.Cut(at, "/")
		if s.Pods[types.UID(uid)] == nil {
			s.Pods[types.UID(uid)] = map[string]cpuList{}
		}
		s.Pods[types.UID(uid)][name] = cpuList{list(t, text)}
	}
	return s
}

func TestRestore(t *testing.T) {
	type held = map[string]string
	two := func(runA, runB string) []LivePod {
		live := []LivePod{{UID: "a", Pod: podOf("a", asking("c", "1"))}, {UID: "b", Pod: podOf("b", asking("c", "1"))}}
		for i, text := range []string{runA, runB} {
			if text != "-" {
				live[i].Running = map[string]Set{"c": list(t, text)}
			}
		}
		return live
	}
	for _, row := range []struct {
		name           string
		saved          Saved
		cpus, reserved string
		live           []LivePod
		want           held
		changed        []string
		dropped        []string
		adopted        int
	}{
		{
			name:  "all fits, nothing runs",
			saved: state(t, Static, "0-3", "0", held{"a/c": "1", "b/c": "2"}), live: two("-", "-"),
			want: held{"a/c": "1", "b/c": "2"},
		},
		{
			name: "no state, all runs", live: two("3", "1"),
			want: held{"a/c": "3", "b/c": "1"}, adopted: 2,
		},
		{
			name: "no state, one runs as under another policy", live: two("", "0-3"),
			want: held{},
		},
		{
			name:  "an unknown pod",
			saved: state(t, Static, "0-3", "0", held{"a/c": "1", "x/c": "2"}), live: two("-", "-"),
			want: held{"a/c": "1"}, dropped: []string{"x/c 2: the node has no such pod"},
		},
		{
			name:  "a pod that only the runtime knows",
			saved: state(t, Static, "0-3", "0", held{"a/c": "1", "x/c": "2", "x/i": "2-3"}), live: append(two("-", "-"), LivePod{UID: "x"}),
			want: held{"a/c": "1", "x/c": "2", "x/i": "2-3"},
		},
		{
			name:  "a container that is gone from the spec, and one that asks for another number",
			saved: state(t, Static, "0-3", "0", held{"a/c": "1-2", "b/d": "3"}), live: two("-", "-"),
			want: held{}, dropped: []string{"the container requests 1", "no such container"},
		},
		{
			name:  "another policy before, what runs is in order",
			saved: state(t, "none", "0-3", "0", held{"a/c": "1", "b/c": "2"}), live: two("1", "-"),
			want: held{"a/c": "1"}, changed: []string{"cpuManagerPolicy was none"}, dropped: []string{"cpuManagerPolicy was none"},
		},
		{
			name:  "reserved changed",
			saved: state(t, Static, "0-3", "0", held{"a/c": "1", "b/c": "2"}), reserved: "1", live: two("1", "2"),
			want: held{"b/c": "2"}, changed: []string{"CPUs 0 were reserved, now 1 is"}, dropped: []string{"1 is reserved"},
		},
		{
			name:  "a CPU went away",
			saved: state(t, Static, "0-3", "0", held{"a/c": "3", "b/c": "2"}), cpus: "0-2", live: two("-", "2"),
			want: held{"b/c": "2"}, changed: []string{"CPUs 3 are no longer online"}, dropped: []string{"3 is not online"},
		},
		{
			name:  "a CPU came",
			saved: state(t, Static, "0-2", "0", held{"a/c": "1"}), live: two("1", "-"),
			want: held{"a/c": "1"}, changed: []string{"CPUs 3 are online now"},
		},
		{
			name:  "an overlap is the one's that runs there",
			saved: state(t, Static, "0-3", "0", held{"a/c": "1", "b/c": "1"}), live: two("-", "1"),
			want: held{"b/c": "1"}, dropped: []string{`1 is held by container "c" of pod b`},
		},
		{
			name:  "an overlap without anything that runs is the first pod's",
			saved: state(t, Static, "0-3", "0", held{"a/c": "1", "b/c": "1"}), live: two("-", "-"),
			want: held{"a/c": "1"}, dropped: []string{`1 is held by container "c" of pod a`},
		},
		{
			name:  "an old state: what runs holds",
			saved: state(t, Static, "0-3", "0", held{"a/c": "1", "b/c": "2"}), live: two("2", "1"),
			want: held{"a/c": "2", "b/c": "1"}, dropped: []string{"the container runs on 2", "the container runs on 1"}, adopted: 2,
		},
		{
			name:  "what both say goes first",
			saved: state(t, Static, "0-3", "0", held{"a/c": "1", "b/c": "2"}), live: two("2", "2"),
			want: held{"a/c": "1", "b/c": "2"},
		},
		{
			name:  "nothing at all",
			saved: state(t, Static, "0-3", "0", held{"a/c": ""}), live: two("", ""),
			want: held{}, dropped: []string{"the set is empty"},
		},
		{
			name:  "within a pod",
			saved: state(t, Static, "0-3", "0", held{"p/i": "1-2", "p/s": "1", "p/j": "1", "p/a": "2", "p/b": "2"}),
			live: []LivePod{{UID: "p", Pod: withInit(podOf("p", asking("a", "1"), asking("b", "1")),
				asking("i", "2"), sidecar(asking("s", "1")), asking("j", "1"))}},
			want:    held{"p/i": "1-2", "p/s": "1", "p/a": "2"},
			dropped: []string{`held by container "a" of pod p`, `held by container "s" of pod p`},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.cpus == "" {
				row.cpus = "0-3"
			}
			if row.reserved == "" {
				row.reserved = "0"
			}
			r, err := Restore(row.saved, board(t, row.cpus), list(t, row.reserved), Options{}, row.live)
			if err != nil {
				t.Fatal(err)
			}
			if got := holds(r.Policy); !maps.Equal(got, row.want) {
				t.Errorf("holds %v, want %v", got, row.want)
			}
			if !slices.Equal(r.Changed, row.changed) {
				t.Errorf("changed: %q, want %q", r.Changed, row.changed)
			}
			if len(r.Dropped) != len(row.dropped) || len(r.Adopted) != row.adopted {
				t.Fatalf("dropped %v, want %q; adopted %v, want %d", r.Dropped, row.dropped, r.Adopted, row.adopted)
			}
			for i, says := range row.dropped {
				d := r.Dropped[i]
				if got := fmt.Sprintf("%s/%s %s: %s", d.PodUID, d.Name, d.CPUs, d.Reason); !strings.Contains(got, says) {
					t.Errorf("dropped: %s, want %q", got, says)
				}
			}
		})
	}
	if _, err := Restore(Saved{}, board(t, "0-3"), list(t, "9"), Options{}, nil); err == nil {
		t.Error("CPUs are reserved that are not there, and it is taken")
	}
}
