package diskusage

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/podtest"
)

// A disk that cannot be measured takes no other metric along.
func TestClaimsThatCannotBeMeasured(t *testing.T) {
	asked := 0
	disks, err := New(Config{
		Pods: func(context.Context) ([]Pod, error) { asked++; return nil, errors.New("no mount table") },
		Node: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	var entries []pod.Entry
	out := metrics.NewStream(&text)
	if err := disks.WriteClaimMetrics(t.Context(), out, entries); err != nil || asked != 0 {
		t.Errorf("without a claim: %v, %d looks", err, asked)
	}
	web, st := podtest.Mixed("web", "1", time.Unix(1e9, 0))
	web.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	entries = []pod.Entry{{Pod: web, Status: &st}}
	if err := disks.WriteClaimMetrics(t.Context(), out, entries); err != nil || asked != 1 {
		t.Errorf("with a claim: %v, %d looks", err, asked)
	}
	if err := out.Flush(); err != nil || text.Len() != 0 {
		t.Errorf("%q, %v", &text, err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client is gone")
	cancel(gone)
	if err := disks.WriteClaimMetrics(ended, out, entries); !errors.Is(err, gone) {
		t.Errorf("after the client: %v", err)
	}
}
