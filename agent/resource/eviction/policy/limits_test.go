package policy

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/pod"
)

func TestOverLimit(t *testing.T) {
	none := Disk{}
	const storage = "ephemeral-storage"
	emptyDirOver := volume("v", emptyDir("", "1Ki"), takes(1025, 0))
	for _, tc := range []struct {
		name            string
		layouts         []Layout // nil is all
		pod             Pod
		signal, message string
	}{
		{name: "no limits", pod: running("p", stores(1e9), container("a"), figures("a", Measurement{}, takes(1e9, 0), takes(1e9, 0)), volume("v", emptyDir("", ""), takes(1e9, 0)))},
		{name: "a volume at its limit", pod: running("p", volume("v", emptyDir("", "1Ki"), takes(1024, 0)))},
		{name: "a volume over it", pod: running("p", emptyDirOver), signal: "emptydirfs.limit", message: `Usage of EmptyDir volume "v" exceeds the limit "1Ki". `},
		{name: "a volume in memory", pod: running("p", volume("v", emptyDir("Memory", "1Ki"), takes(1025, 0))), signal: "emptydirfs.limit", message: `Usage of EmptyDir volume "v" exceeds the limit "1Ki". `},
		{name: "a limit of zero is none", pod: running("p", volume("v", emptyDir("", "0"), takes(1, 0)))},
		{name: "a volume that is not known", pod: running("p", volume("v", emptyDir("", "1"), none))},
		{name: "critical pods stay", pod: running("p", emptyDirOver, priority(pod.SystemCriticalPriority))},
		{
			name: "static pods are held to theirs", pod: running("p", emptyDirOver, annotated(pod.AnnotationSource)),
			signal: "emptydirfs.limit", message: `Usage of EmptyDir volume "v" exceeds the limit "1Ki". `,
		},
		{name: "without figures", pod: running("p", emptyDirOver, unknown)},
		{name: "a pod at its limit", pod: running("p", limitedTo("a", storage, "1k"), limitedTo("b", storage, "1k"), container("c"), stores(2000))},
		{
			name: "a pod over it, though a container has none", pod: running("p", limitedTo("a", storage, "1k"), limitedTo("b", storage, "1k"), container("c"), stores(2001)),
			signal: "ephemeralpodfs.limit", message: "Pod ephemeral local storage usage exceeds the total limit of containers 2k. ",
		},
		{
			name: "an overhead raises it", pod: running("p", limitedTo("a", storage, "1k"), overhead(storage, "2k"), stores(3001)),
			signal: "ephemeralpodfs.limit", message: "Pod ephemeral local storage usage exceeds the total limit of containers 3k. ",
		},
		{
			name: "a limit of zero is one, of the pod", pod: running("p", limitedTo("a", storage, "0"), stores(1)),
			signal: "ephemeralpodfs.limit", message: "Pod ephemeral local storage usage exceeds the total limit of containers 0. ",
		},
		{name: "but not of a container", pod: running("p", limitedTo("a", storage, "0"), figures("a", Measurement{}, takes(1, 1), takes(1, 1)))},
		{name: "a container at its limit", pod: running("p", limitedTo("a", storage, "1Mi"), figures("a", Measurement{}, none, takes(mi, 0)))},
		{
			name: "a container over it by its logs", pod: running("p", limitedTo("a"), limitedTo("b", storage, "1Mi"), figures("a", Measurement{}, none, takes(9*mi, 0)), figures("b", Measurement{}, none, takes(mi+1, 0))),
			signal: "ephemeralcontainerfs.limit", message: `Container b exceeded its local ephemeral storage limit "1Mi". `,
		},
		{
			name: "a writable layer on nodefs", layouts: []Layout{OneFs}, pod: running("p", limitedTo("a", storage, "1Mi"), figures("a", Measurement{}, takes(mi, 0), takes(1, 0))),
			signal: "ephemeralcontainerfs.limit", message: `Container a exceeded its local ephemeral storage limit "1Mi". `,
		},
		{name: "a writable layer with images elsewhere", layouts: []Layout{ImageFs, SplitFs}, pod: running("p", limitedTo("a", storage, "1Mi"), figures("a", Measurement{}, takes(mi, 0), takes(1, 0)))},
		{
			name: "volumes are told first", pod: running("p", emptyDirOver, limitedTo("a", storage, "1"), stores(2), figures("a", Measurement{}, none, takes(2, 0))),
			signal: "emptydirfs.limit", message: `Usage of EmptyDir volume "v" exceeds the limit "1Ki". `,
		},
		{
			name: "then the pod", pod: running("p", limitedTo("a", storage, "1"), stores(2), figures("a", Measurement{}, none, takes(2, 0))),
			signal: "ephemeralpodfs.limit", message: "Pod ephemeral local storage usage exceeds the total limit of containers 1. ",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			layouts := tc.layouts
			if layouts == nil {
				layouts = []Layout{OneFs, ImageFs, SplitFs}
			}
			var want Eviction
			if tc.signal != "" {
				want = Eviction{Signal: tc.signal, Message: tc.message, Grace: time.Second}
			}
			for _, l := range layouts {
				got, ok := OverLimit(&tc.pod, l)
				if d := gocmp.Diff(want, got); d != "" || ok != (tc.signal != "") {
					t.Errorf("layout %d: %t (-want +got):\n%s", l, ok, d)
				}
			}
		})
	}
}

// Only pods with a limit that can be exceeded are checked.
func TestLimited(t *testing.T) {
	for _, tc := range []struct {
		name string
		pod  Pod
		want bool
	}{
		{"nothing", running("p", container("a")), false},
		{"a volume", running("p", volume("v", emptyDir("", "1Ki"), Disk{})), true},
		{"a volume without a limit", running("p", volume("v", emptyDir("", ""), Disk{})), false},
		{"a volume in memory", running("p", volume("v", emptyDir("Memory", "1Ki"), Disk{})), false},
		{"a container", running("p", limitedTo("a", "ephemeral-storage", "1Mi")), true},
		{"a container's memory", running("p", limitedTo("a", "memory", "1Mi")), false},
		{"of the system", running("p", limitedTo("a", "ephemeral-storage", "1Mi"), priority(pod.SystemCriticalPriority)), false},
	} {
		if got := HasLimit(tc.pod.Pod); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
