package pleg

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
)

func told(t *testing.T, p *PLEG) string {
	t.Helper()
	var text strings.Builder
	out := metrics.NewStream(&text)
	p.WriteMetrics(out)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if problems := metricstest.Problems([]byte(text.String())); len(problems) > 0 {
		t.Errorf("%q in\n%s", problems, text.String())
	}
	return text.String()
}

func TestMetrics(t *testing.T) {
	if text := told(t, New(Config{})); strings.Contains(text, "last_seen") || !strings.Contains(text, "interval_seconds_count 0\n") {
		t.Errorf("before it runs:\n%s", text)
	}
	run(t, func(rt *fake.Runtime) {
		rt.Inject("ListContainers", fake.Fault{Delay: 3 * time.Second, Err: errors.New("not now"), Times: 1})
	}, func(b *bench) {
		start := time.Now()
		time.Sleep(time.Hour)
		synctest.Wait()
		text := told(b.T, b.pleg)
		lists := b.rt.Count("ListPodSandbox")
		for _, want := range []string{
			// The first failed, so that between it and the second is nothing to tell.
			"kubelet_pleg_relist_duration_seconds_count " + strconv.Itoa(lists) + "\n",
			"kubelet_pleg_relist_duration_seconds_bucket{le=\"1\"} " + strconv.Itoa(lists-1) + "\n",
			"kubelet_pleg_relist_interval_seconds_count " + strconv.Itoa(lists-2) + "\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		_, rest, _ := strings.Cut(text, "\nkubelet_pleg_last_seen_seconds ")
		seen, err := time.ParseDuration(strings.TrimSpace(rest) + "s")
		if last := time.Unix(0, 0).Add(seen); err != nil || last.Before(start.Add(58*time.Minute)) || last.After(time.Now()) {
			t.Errorf("last seen %v, %v", last, err)
		}
	})
}
