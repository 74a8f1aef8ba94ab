package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
)

func names(ranked []*Pod) (out []string) {
	for _, p := range ranked {
		out = append(out, p.Pod.Name)
	}
	return out
}

func TestRank(t *testing.T) {
	none := Disk{}
	all := []edit{
		figures("c", Measurement{}, takes(1, 100), takes(10, 200)),
		volume("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}, takes(100, 0)),
		volume("empty", emptyDir("", ""), takes(200, 0)),
		volume("map", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, takes(300, 5)),
		volume("memory", emptyDir(v1.StorageMediumMemory, ""), takes(1e9, 1e9)),
		volume("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}, takes(1e9, 1e9)),
	}
	for _, tc := range []struct {
		name    string
		signal  evictionapi.Signal
		layouts []Layout // nil is all
		pods    []Pod
		want    []string
	}{
		{name: "none", signal: evictionapi.MemoryAvailable},
		{name: "over its request goes before a lower priority", signal: evictionapi.MemoryAvailable, pods: []Pod{
			running("low", priority(-5), container("c", "memory", "1Mi"), uses(mi)),
			running("over", priority(10), container("c", "memory", "1Mi"), uses(mi+1)),
		}, want: []string{"over", "low"}},
		{name: "of those over it the lower priority", signal: evictionapi.AllocatableMemoryAvailable, pods: []Pod{
			running("most", uses(1000)), running("low", priority(-1), uses(1)), running("less", uses(999)),
		}, want: []string{"low", "most", "less"}},
		{name: "then by what is above the request, not by all", signal: evictionapi.MemoryAvailable, pods: []Pod{
			running("large", container("c", "memory", "900"), uses(1000)), running("small", container("c", "memory", "100"), uses(300)),
		}, want: []string{"small", "large"}},
		{name: "also below the request", signal: evictionapi.MemoryAvailable, pods: []Pod{
			running("far", container("c", "memory", "900"), uses(100)), running("near", container("c", "memory", "200"), uses(100)),
		}, want: []string{"near", "far"}},
		{name: "no figures go first, by priority", signal: evictionapi.MemoryAvailable, pods: []Pod{
			running("over", priority(-9), uses(1)), running("b", unknown, priority(2)), running("a", unknown, priority(1)),
		}, want: []string{"a", "b", "over"}},
		{name: "a figure that is missing is none", signal: evictionapi.MemoryAvailable, pods: []Pod{running("none"), running("some", uses(1))}, want: []string{"some", "none"}},
		{name: "critical, static and mirror pods stay", signal: evictionapi.MemoryAvailable, pods: []Pod{
			running("critical", priority(pod.SystemCriticalPriority), uses(1)), running("static", annotated(pod.AnnotationSource), uses(1)),
			running("mirror", annotated(pod.AnnotationMirror), uses(1)), running("nearly", priority(pod.SystemCriticalPriority-1), uses(1)), {},
		}, want: []string{"nearly"}},
		{name: "the same go youngest first, then by UID", signal: evictionapi.MemoryAvailable, pods: []Pod{
			running("b"), running("a"), running("young", later(9)),
		}, want: []string{"young", "a", "b"}},
		{name: "process IDs: priority, then tasks, whatever is requested", signal: evictionapi.PIDAvailable, pods: []Pod{
			running("few", tasks(2), container("c", "memory", "1")), running("none"), running("many", tasks(1<<40)), running("high", priority(1), tasks(1<<50)),
		}, want: []string{"many", "few", "none", "high"}},
		{name: "process IDs: no figures among equals", signal: evictionapi.PIDAvailable, pods: []Pod{
			running("many", tasks(9)), running("high", unknown, priority(1)), running("unknown", unknown),
		}, want: []string{"unknown", "many", "high"}},
		{name: "disk: over the request, priority, usage", signal: evictionapi.NodeFsAvailable, pods: []Pod{
			running("within", priority(-1), container("c", "ephemeral-storage", "50"), figures("c", Measurement{}, none, takes(50, 0))),
			running("high", priority(1), figures("c", Measurement{}, none, takes(900, 0))),
			running("less", figures("c", Measurement{}, none, takes(10, 0))),
			running("more", container("c", "ephemeral-storage", "50"), figures("c", Measurement{}, none, takes(61, 0))),
		}, want: []string{"more", "less", "high", "within"}},
		{name: "inodes: none can be requested, but the request of bytes spares", signal: evictionapi.NodeFsInodesFree, pods: []Pod{
			running("asked", container("c", "ephemeral-storage", "1Mi"), figures("c", Measurement{}, none, takes(0, 900))),
			running("some", figures("c", Measurement{}, none, takes(0, 3))),
			running("none", priority(-1), figures("c", Measurement{}, none, takes(9, 0))),
		}, want: []string{"some", "asked", "none"}},
		{name: "no writable layers on nodefs", signal: evictionapi.NodeFsAvailable, layouts: []Layout{ImageFs}, pods: []Pod{
			running("layer", figures("c", Measurement{}, takes(900, 0), none)), running("log", figures("c", Measurement{}, none, takes(1, 0))),
		}, want: []string{"log", "layer"}},
		{name: "writable layers on nodefs", signal: evictionapi.NodeFsAvailable, layouts: []Layout{OneFs, SplitFs}, pods: []Pod{
			running("layer", figures("c", Measurement{}, takes(900, 0), none)), running("log", figures("c", Measurement{}, none, takes(1, 0))),
		}, want: []string{"layer", "log"}},
		{name: "images alone", signal: evictionapi.ImageFsAvailable, layouts: []Layout{SplitFs}, pods: []Pod{
			running("b", figures("c", Measurement{}, takes(900, 0), takes(900, 0))), running("a"),
		}, want: []string{"a", "b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			layouts := tc.layouts
			if layouts == nil {
				layouts = []Layout{OneFs, ImageFs, SplitFs}
			}
			for _, l := range layouts {
				for range 5 {
					if d := gocmp.Diff(tc.want, names(Rank(tc.pods, tc.signal, l))); d != "" {
						t.Fatalf("layout %d (-want +got):\n%s", l, d)
					}
					rand.Shuffle(len(tc.pods), func(i, j int) { tc.pods[i], tc.pods[j] = tc.pods[j], tc.pods[i] })
				}
			}
		})
	}

	// What counts where, by the digits of the sum.
	p := running("all", all...)
	for _, tc := range []struct {
		signals [2]evictionapi.Signal
		want    [3][2]int64 // bytes and inodes by layout
	}{
		{[2]evictionapi.Signal{evictionapi.NodeFsAvailable, evictionapi.NodeFsInodesFree}, [3][2]int64{{611, 305}, {610, 205}, {611, 305}}},
		{[2]evictionapi.Signal{evictionapi.ImageFsAvailable, evictionapi.ImageFsInodesFree}, [3][2]int64{{611, 305}, {1, 100}, {}}},
		{[2]evictionapi.Signal{evictionapi.ContainerFsAvailable, evictionapi.ContainerFsInodesFree}, [3][2]int64{{611, 305}, {1, 100}, {611, 305}}},
	} {
		for l, want := range tc.want {
			for i, s := range tc.signals {
				if got := diskUsage(&p, Layout(l).storageParts(s), i == 1); got != want[i] {
					t.Errorf("%v, layout %d: %d, want %d", s, l, got, want[i])
				}
			}
		}
	}
}

func TestRequest(t *testing.T) {
	for _, tc := range []struct {
		name  string
		edits []edit
		want  int64
	}{
		{name: "nothing"},
		{name: "main containers add up", edits: []edit{container("a", "memory", "1"), container("b", "memory", "2", "cpu", "1")}, want: 3},
		{name: "an init container that needs more", edits: []edit{initial("i", "memory", "9"), container("a", "memory", "2")}, want: 9},
		{name: "with the sidecars before it", edits: []edit{sidecar("s", "memory", "5"), initial("i", "memory", "9"), sidecar("t", "memory", "1"), container("a", "memory", "2")}, want: 14},
		{name: "sidecars beside main containers", edits: []edit{initial("i", "memory", "9"), sidecar("s", "memory", "5"), sidecar("t", "memory", "6"), container("a", "memory", "2")}, want: 13},
		{name: "the overhead", edits: []edit{container("a", "memory", "2"), overhead("memory", "40")}, want: 42},
		{name: "no overhead alone", edits: []edit{overhead("memory", "40")}},
		{name: "the pod's own", edits: []edit{container("a", "memory", "2"), asAWhole("memory", "7"), overhead("memory", "40")}, want: 47},
		{name: "the pod's own of something else", edits: []edit{container("a", "memory", "2"), asAWhole("cpu", "1")}},
		{name: "the pod's own that it cannot have", edits: []edit{container("a", "memory", "2"), asAWhole("ephemeral-storage", "1")}, want: 2},
		{name: "more than fits", edits: []edit{container("a", "memory", "9999E"), container("b", "memory", "1")}, want: 1<<63 - 1},
	} {
		p := running("p", tc.edits...)
		if got := request(p.Pod, v1.ResourceMemory); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func many(n int) []Pod {
	pods := make([]Pod, n)
	for i := range pods {
		size := int64(i * 7919 % 101)
		pods[i] = running(fmt.Sprint("pod-", i), priority(int32(i%3)), container("a", "memory", "64Mi", "ephemeral-storage", "8Mi"), container("b"),
			uses(size*mi), tasks(size),
			figures("a", Measured(size), takes(size*mi, size), takes(mi, 9)), figures("b", Measured(size), takes(0, 0), takes(mi, 9)),
			volume("v", emptyDir("", ""), takes(size*mi, size)))
	}
	return pods
}

// TestRankAllocates limits ranking to two allocated slices, however many pods there
// are, because it runs when memory is short.
func TestRankAllocates(t *testing.T) {
	pods := many(30)
	for _, s := range []evictionapi.Signal{evictionapi.MemoryAvailable, evictionapi.NodeFsInodesFree, evictionapi.PIDAvailable} {
		if n := testing.AllocsPerRun(10, func() { Rank(pods, s, OneFs) }); n > 2 {
			t.Errorf("%v: %v allocations", s, n)
		}
	}
}

func BenchmarkRank(b *testing.B) {
	pods := many(30)
	for _, s := range []evictionapi.Signal{evictionapi.MemoryAvailable, evictionapi.NodeFsAvailable, evictionapi.PIDAvailable} {
		b.Run(s.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Rank(pods, s, OneFs)
			}
		})
	}
}
