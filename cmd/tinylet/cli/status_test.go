package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/source/offline"
)

func TestStatusTable(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &system{now: func() time.Time { return now }, uptime: func() time.Duration { return 0 }}
	answered, expires := now.Add(-90*time.Second), now.AddDate(1, 0, 0)
	alone := local.Status{
		Version: local.Version{Kubelet: "v1.36.0+tinylet.0.1.0", OS: "linux", Arch: "arm64", Go: "go1.26", PID: 7},
		Started: now.Add(-time.Hour), RuntimeCalls: 42,
	}
	joined, new, short := alone, alone, alone
	short.Conditions = []local.Condition{
		{Type: "MemoryPressure", Status: "True", Reason: "KubeletHasInsufficientMemory", Message: "kubelet has insufficient memory available"},
		{Type: "DiskPressure", Status: "False", Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
	}
	stuck := alone
	stuck.Problem = "no bridge:\n\u009b2Jremove it"
	joined.Cluster = &local.Cluster{
		Registered: true, LastResponse: &answered, Failure: "dial tcp 10.0.0.1:6443:\nno route to host", Expires: &expires,
		Problem: "put a new token into the file", Sent: 2 << 20, Received: 5000, Metered: true,
		SentToday: 1 << 20, ReceivedToday: 4000, ServingExpires: &expires,
		Conditions: []local.Condition{
			{Type: "MemoryPressure", Status: "False", Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
			{Type: "Ready", Status: "False", Reason: "KubeletNotReady", Message: "the runtime\ndoes not answer"},
		},
	}
	joined.Cluster.Journal = &local.Journal{State: offline.StatePlain, Secrets: []string{"default/a", "shop/b"}, Aside: []string{"/var/lib/kubelet/tinylet/journal.aside-1"}}
	new.Cluster = &local.Cluster{}
	new.Health = map[string]string{"runtime": "silent"}
	const head = `VERSION        v1.36.0+tinylet.0.1.0 (linux/arm64, go1.26)
PID            7
RUNS FOR       60m
RUNTIME CALLS  42
`
	for _, row := range []struct {
		name string
		st   local.Status
		want string
	}{
		{"alone", alone, head + "HEALTH         ok\n"},
		{"alone, and short of memory", short, head + `NODE           MemoryPressure True (KubeletHasInsufficientMemory): kubelet has insufficient memory available
HEALTH         ok
`},
		{"alone, and pods have no network", stuck, head + "TO DO          no bridge: 2Jremove it\nHEALTH         ok\n"},
		{"volumes of a kubelet stay", local.Status{Version: alone.Version, Started: alone.Started, RuntimeCalls: 42, Todo: []string{"unmount it", "delete it"}},
			head + "TO DO          unmount it\nTO DO          delete it\nHEALTH         ok\n"},
		{"joined, and the link is gone", joined, head + `NODE           registered
               MemoryPressure False (KubeletHasSufficientMemory)
               Ready False (KubeletNotReady): the runtime does not answer
API SERVER     answered 90s ago, now fails: dial tcp 10.0.0.1:6443: no route to host
BYTES          1.0Mi sent, 4Ki received today; 2.0Mi and 5Ki since the start (metered)
CERTIFICATE    expires 2027-03-01T12:00:00Z
               the kubelet API's certificate expires 2027-03-01T12:00:00Z
JOURNAL        not sealed, Secrets in it: 2
               quarantined: /var/lib/kubelet/tinylet/journal.aside-1
TO DO          put a new token into the file
HEALTH         ok
`},
		{"not joined yet", new, head + `NODE           not registered yet
API SERVER     has never answered
BYTES          0Ki sent, 0Ki received today; 0Ki and 0Ki since the start
HEALTH         runtime: silent
`},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := s.statusTable(&row.st).write(&out); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, out.String()); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
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
