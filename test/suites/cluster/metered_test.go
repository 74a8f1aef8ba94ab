//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// meteredConfig is the agent's on a link where each byte costs.
const meteredConfig = config + `---
apiVersion: tinylet.dev/v1alpha1
kind: TinyletConfiguration
metered: true
`

// window is how long each of both is looked at. A report of a usual node is in
// it, and none of a metered one, which is due each 15 min.
const window = 5 * time.Minute

// TestMetered looks at a node without pods that is metered, beside one that is
// not: that the cluster sees no difference, and what each costs.
func TestMetered(t *testing.T) {
	l := newLab(t)
	l.until("the node is Ready", l.nodeReady)
	var plain, metered spent
	for _, step := range []struct {
		name string
		test func(lab)
	}{
		{"plain", func(l lab) { plain = l.stays(window) }},
		{"metered", func(l lab) {
			l.put("/etc/tinylet/config.yaml", meteredConfig)
			l.sh("/etc/init.d/S50tinylet restart")
			l.leaseLasts(50)
			metered = l.stays(window)
		}},
		{"dead link", lab.deadLink},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(l.with(t)) }) {
			return
		}
	}
	t.Logf("wire traffic of an idle node, all headers: %.3f MB/h, metered %.3f MB/h", plain.perHour(), metered.perHour())
	if metered.perHour() > 0.6*plain.perHour() {
		t.Error("metered costs almost as much")
	}
	for _, e := range l.c.Refused(t) {
		t.Errorf("the cluster refused %+v", e)
	}
}

// leaseLasts waits until the lease has a duration.
func (l lab) leaseLasts(seconds int32) {
	l.Helper()
	l.until(fmt.Sprintf("the lease lasts %d s", seconds), func() string {
		var lease coordinationv1.Lease
		l.c.Get(l.T, &lease, "lease", name, "--namespace=kube-node-lease")
		if got := lease.Spec.LeaseDurationSeconds; got == nil || *got != seconds {
			return fmt.Sprint(got)
		}
		return ""
	})
}

// spent is what a time has cost.
type spent struct {
	wire     int64             // bytes at the network card
	counted  map[string]uint64 // bytes by the agent's metric
	requests map[string]int
	took     time.Duration
}

// perHour is in MB.
func (s *spent) perHour() float64 { return float64(s.wire) / 1e6 * 3600 / s.took.Seconds() }

// stays looks at the node for a time, in which it has to be Ready without a
// break, and answers what that cost.
func (l lab) stays(d time.Duration) spent {
	l.Helper()
	l.until("the node is Ready", l.nodeReady)
	time.Sleep(30 * time.Second)
	ready := l.readyCondition()
	before, counted, from := l.usage(), l.apiBytes(), time.Now()
	for time.Since(from) < d {
		if now := l.readyCondition(); now.Status != corev1.ConditionTrue || now.LastTransitionTime != ready.LastTransitionTime {
			l.Fatalf("after %v the node is Ready %s since %v: %s", time.Since(from), now.Status, now.LastTransitionTime, now.Message)
		}
		time.Sleep(time.Second)
	}
	after, to := l.usage(), time.Now()
	s := spent{wire: after.wire - before.wire, took: after.at - before.at, counted: l.apiBytes(), requests: make(map[string]int)}
	for key := range s.counted {
		s.counted[key] -= counted[key]
	}
	for _, e := range l.c.AuditLog(l.T) {
		if e.User.Username == "system:node:"+name && e.Received.After(from) && e.Received.Before(to) && (e.Verb == "watch") == (e.Stage == "ResponseStarted") {
			s.requests[strings.TrimSuffix(e.Verb+" "+e.Object.Resource+"/"+e.Object.Subresource, "/")]++
		}
	}
	if got := l.c.Must(l.T, "get", "events", "--all-namespaces", "--field-selector=reason=NodeNotReady", "--output=name"); strings.TrimSpace(got) != "" {
		l.Errorf("events of the node controller: %s", got)
	}
	l.print(&s)
	return s
}

// print logs what was spent, and checks that the metric leaves nothing out.
func (l lab) print(s *spent) {
	l.Helper()
	var counted uint64
	for _, key := range slices.Sorted(maps.Keys(s.counted)) {
		if s.counted[key] > 0 {
			l.Logf("  %7d bytes %s", s.counted[key], key)
		}
		counted += s.counted[key]
	}
	total := 0
	for _, what := range slices.Sorted(maps.Keys(s.requests)) {
		l.Logf("  %7d requests %s", s.requests[what], what)
		total += s.requests[what]
	}
	l.Logf("budget: in %v %d requests, %d bytes counted, %d with the headers of TCP, IP and Ethernet: %.3f MB/h",
		s.took.Round(time.Second), total, counted, s.wire, s.perHour())
	if counted == 0 || counted > uint64(s.wire) || counted < uint64(s.wire)/3 {
		l.Errorf("the metric has %d of %d bytes", counted, s.wire)
	}
}

func (l lab) readyCondition() corev1.NodeCondition {
	l.Helper()
	var n corev1.Node
	l.c.Get(l.T, &n, "node", name)
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		l.Fatalf("conditions %+v", n.Status.Conditions)
	}
	return n.Status.Conditions[i]
}

// apiBytes is the agent's tinylet_api_bytes_total, by direction, verb and
// resource, as a scraper reads it.
func (l lab) apiBytes() map[string]uint64 {
	l.Helper()
	text, err := l.vm.Must(l.Context(), "tinylet", "metrics")
	if err != nil {
		l.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text + "\n")) // which Must trims
	if err != nil {
		l.Fatalf("tinylet metrics: %v\n%s", err, text)
	}
	out := make(map[string]uint64)
	for _, sample := range families["tinylet_api_bytes_total"].GetMetric() {
		var key []string
		for _, label := range sample.GetLabel() {
			key = append(key, label.GetValue())
		}
		out[strings.Join(key, " ")] = uint64(sample.GetCounter().GetValue())
	}
	return out
}

// noticed is how long a metered node may take to notice a dead link: it renews
// each 26 s at most, TCP gives up after 10 s, and the board is slow.
const noticed = 26*time.Second + 10*time.Second + 15*time.Second

// deadLink cuts the link without a sign of it at the board.
func (l lab) deadLink() {
	l.c.Partition(l.T, name)
	cut := time.Now()
	for l.failure() == "" {
		if time.Since(cut) > noticed {
			l.Fatalf("a dead link is not noticed in %v", noticed)
		}
		time.Sleep(time.Second)
	}
	l.Logf("a dead link was noticed after %.0f s: %s", time.Since(cut).Seconds(), l.failure())
	l.c.Heal(l.T, name)
	healed := time.Now()
	l.until("the server answers again", l.failure)
	l.until("the lease is renewed", func() string {
		var lease coordinationv1.Lease
		l.c.Get(l.T, &lease, "lease", name, "--namespace=kube-node-lease")
		if !lease.Spec.RenewTime.After(healed) {
			return "last at " + lease.Spec.RenewTime.String()
		}
		return ""
	})
	l.until("the node is Ready", l.nodeReady)
}

// failure is what the agent says its last request failed with.
func (l lab) failure() string {
	l.Helper()
	out, err := l.vm.Run(l.Context(), "tinylet", "status", "-o", "json")
	if err != nil {
		l.Fatal(err)
	}
	var status struct {
		Cluster struct {
			Failure string `json:"failure"`
			Metered bool   `json:"metered"`
		} `json:"cluster"`
	}
	if err := json.Unmarshal(out.Stdout, &status); err != nil {
		l.Fatalf("tinylet status: %v\n%s", err, out.Stdout)
	}
	if !status.Cluster.Metered {
		l.Fatalf("the agent does not call itself metered:\n%s", out.Stdout)
	}
	return status.Cluster.Failure
}
