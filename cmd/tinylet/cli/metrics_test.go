package cli

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/server/local"
)

func TestMetricsPrintsWhatTheAgentTells(t *testing.T) {
	n := newNode(t, samplePods(), nil, func(c *local.Config) {
		c.Metrics = func(_ context.Context, w io.Writer) error {
			out := metrics.NewStream(w)
			out.Family(metrics.KindCounter, "tinylet_api_bytes_total", "Bytes.")
			out.Sample(5, metrics.AppendLabel(nil, "direction", "sent"))
			return out.Flush()
		}
	})
	out, _, err := n.run(t, "metrics")
	want := "# HELP tinylet_api_bytes_total Bytes.\n# TYPE tinylet_api_bytes_total counter\ntinylet_api_bytes_total{direction=\"sent\"} 5\n"
	if err != nil || out != want {
		t.Errorf("printed %q, %v", out, err)
	}
	var e *ExitError
	if _, _, err := newNode(t, nil, nil).run(t, "metrics"); !errors.As(err, &e) || e.Code != codeNoAgent {
		t.Errorf("without an agent: %v", err)
	}
}
