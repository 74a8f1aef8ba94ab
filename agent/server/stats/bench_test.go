package stats

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/tinylet/tinylet/cgroups"
)

// thirtyPods is a full node: 30 pods with these containers and one interface
// each.
func thirtyPods(t testing.TB, containers ...string) *Stats {
	t.Helper()
	b := newBoard(t)
	b.cfg.Log = slog.New(slog.DiscardHandler)
	b.cfg.Network = func(_ context.Context, _ *Pod, to []Interface) ([]Interface, error) {
		return append(to, Interface{Name: "eth0", Rx: Traffic{Bytes: 1e6, Packets: 1e3}, Tx: Traffic{Bytes: 1e6, Packets: 1e3}}), nil
	}
	for i := range 30 {
		b.pod(t, "default", fmt.Sprintf("web-7c9d8f5b6-%05d", i), containers...)
	}
	return b.stats(t)
}

var answers = []struct {
	name   string
	write  func(*Stats, context.Context, io.Writer) error
	allocs float64 // at most
}{
	{"resource", (*Stats).WriteResource, 20},
	{"cadvisor", (*Stats).WriteCadvisor, 30},
	{"summary", func(s *Stats, ctx context.Context, w io.Writer) error { return s.WriteSummary(ctx, w, false) }, 1500},
	{"summary-cpu-memory", func(s *Stats, ctx context.Context, w io.Writer) error { return s.WriteSummary(ctx, w, true) }, 1200},
}

func TestAllocations(t *testing.T) {
	s := thirtyPods(t, "app", "side")
	for _, a := range answers {
		t.Run(a.name, func(t *testing.T) {
			if n := testing.AllocsPerRun(5, func() {
				if err := a.write(s, t.Context(), io.Discard); err != nil {
					t.Fatal(err)
				}
			}); n > a.allocs {
				t.Errorf("%v allocations for 30 pods, want %v at most", n, a.allocs)
			}
		})
	}
}

// counter counts bytes.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func BenchmarkScrape(b *testing.B) {
	s := thirtyPods(b, "app", "side")
	for _, a := range answers {
		b.Run(a.name, func(b *testing.B) {
			b.ReportAllocs()
			var size counter
			for b.Loop() {
				size = 0
				if err := a.write(s, b.Context(), &size); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size), "text-bytes")
		})
	}
}

// BenchmarkGather reads all stats of 30 pods and writes nothing.
func BenchmarkGather(b *testing.B) {
	for _, containers := range [][]string{{"app"}, {"app", "side"}} {
		s := thirtyPods(b, containers...)
		for _, answer := range []struct {
			name  string
			parts cgroups.Parts
		}{{"resource", resourceParts}, {"summary", summaryParts}, {"cadvisor", cadvisorParts}} {
			b.Run(fmt.Sprintf("%s/containers=%d", answer.name, len(containers)), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if g, err := s.collect(b.Context(), answer.parts); err != nil || g.readFailed {
						b.Fatal(g, err)
					}
				}
			})
		}
	}
}
