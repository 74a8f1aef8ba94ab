package podworker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
	"github.com/tinylet/tinylet/agent/pod"
)

// counted are the samples of a name's histogram, without the name.
func counted(t *testing.T, s *Workers, suffix string) []string {
	t.Helper()
	var text strings.Builder
	out := metrics.NewStream(&text)
	s.WriteMetrics(out)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if problems := metricstest.Problems([]byte(text.String())); len(problems) > 0 {
		t.Errorf("%q in\n%s", problems, text.String())
	}
	var lines []string
	for line := range strings.Lines(text.String()) {
		if rest, ok := strings.CutPrefix(line, "kubelet_pod_worker_duration_seconds_"+suffix+"{operation_type="); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	slices.Sort(lines)
	return lines
}

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		if got := counted(t, s, "count"); got != nil {
			t.Errorf("before any step: %q", got)
		}
		s.AdoptRunning(ctx, nil)
		p := newPod("u1", "web", 5)
		s.UpdatePod(ctx, p)
		settle(2 * time.Second)
		for range 2 { // the first is an update, the second finds nothing new
			s.UpdatePod(ctx, p)
			s.Wake("u1")
			settle(2 * time.Second)
			p = p.DeepCopy()
		}
		f.mu.Lock()
		f.fail["sync"] = 1
		f.mu.Unlock()
		s.UpdatePod(ctx, p)
		settle(5 * time.Second)
		s.RemovePod(ctx, pod.RefOf(p))
		settle(time.Minute)
		steps := len(f.take())
		want := []string{`"create"} 1`, `"kill"} 1`, `"sync"} 4`, `"terminated"} 1`, `"update"} 2`}
		got := counted(t, s, "count")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of %d steps (-want +got):\n%s", steps, diff)
		}
		if sums := counted(t, s, "sum"); !slices.Contains(sums, `"create"} 1`) || !slices.Contains(sums, `"kill"} 5`) {
			t.Errorf("sums %q", sums)
		}
	})
}
