package bench

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{8, 1, 2, 4}, 3}} {
		if got := median(tt.of); got != tt.want {
			t.Errorf("median of %v is %v, want %v", tt.of, got, tt.want)
		}
	}
	seconds := []time.Duration{5 * time.Second, time.Second, 2 * time.Second}
	if got := median(seconds); got != 2*time.Second || seconds[0] != 5*time.Second {
		t.Errorf("median is %v, values are %v now", got, seconds)
	}
}

// near compares measurements without the error of floating point.
var near = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })

func TestFigures(t *testing.T) {
	idle := []*sample{parsed(t, boardText), parsed(t, strings.Replace(boardText, "23000 kB", "99000 kB", 1)), parsed(t, later)}
	f := measurements{}
	if err := f.addIdle(idle, "stock-kubelet", true); err != nil {
		t.Fatal(err)
	}
	busy := []*sample{parsed(t, boardText), parsed(t, strings.Replace(later, "300000 kB", "250000 kB", 1))}
	if err := f.addPods(busy, "stock-kubelet", 10); err != nil {
		t.Fatal(err)
	}
	f.addOne([]time.Duration{4 * time.Second, 2 * time.Second, 3 * time.Second}, []time.Duration{time.Second})
	f.addTen([]time.Duration{1 * time.Second, 2 * time.Second, 9 * time.Second}, []time.Duration{time.Second, 3 * time.Second})
	want := measurements{
		idleCPU("agent"): 50, idleCPU("containerd"): 10, idleCPU("shims"): 5, idleCPU("pods"): 0,
		idleCPU("kernel threads"): 0, idleCPU("other processes"): 0,
		idleCPU(runtimeParts): 65, idleCPU(wholeNode): 20000 / 60.0,
		podsCPU("agent"): 50, podsCPU("containerd"): 10, podsCPU("shims"): 5, podsCPU("pods"): 0,
		podsCPU("kernel threads"): 0, podsCPU("other processes"): 0,
		podsCPU(runtimeParts): 65, podsCPU(wholeNode): 20000 / 60.0,
		idleRSS: 82.944, idleAnon: 23.552, podsRSS: 82.944, podsAnon: 23.552,
		idleContainerd: 0, podsContainerd: 0,
		idleAvailable: 307.2, podsAvailable: (307.2 + 256) / 2, podMemory: 2.56,
		wireIn: 1.8, wireOut: 0.6, wireBoth: 2.4,
		idleFlash: 200 * 512 * 60 / 1e3, podsFlash: 200 * 512 * 60 / 1e3,
		oneStart: 3, oneDelete: 1, tenStart: 2, lastStart: 9, tenDelete: 2, lastDelete: 3,
	}
	if diff := cmp.Diff(want, f, near); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	short := measurements{}
	if err := short.addIdle(idle, "stock-kubelet", false); err != nil {
		t.Fatal(err)
	}
	if _, ok := short[wireBoth]; ok {
		t.Error("a short window tells of the wire")
	}
}
