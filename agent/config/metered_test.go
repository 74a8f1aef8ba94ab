package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMetered(t *testing.T) {
	type effect struct {
		Lease         int32
		Look, Report  time.Duration
		Pace          UpdateIntervals
		Valid, Warned bool
	}
	const on = tinyletHead + "metered: true\n---\n"
	pace := func(renew, ping time.Duration) UpdateIntervals {
		return UpdateIntervals{LeaseRenewal: renew, StatusDelay: time.Minute, EventInterval: 30 * time.Minute, PingAfter: ping}
	}
	usual := effect{50, 10 * time.Second, 15 * time.Minute, pace(25*time.Second, 30*time.Second), true, false}
	with := func(change func(*effect)) effect {
		e := usual
		change(&e)
		return e
	}
	for _, row := range []struct {
		name, base string
		dropIns    []string
		args       []string
		want       effect
	}{
		{name: "not metered", base: kubeletHead, want: effect{40, 10 * time.Second, 5 * time.Minute, UpdateIntervals{}, true, false}},
		{name: "false", base: tinyletHead + "metered: false", want: effect{40, 10 * time.Second, 5 * time.Minute, UpdateIntervals{}, true, false}},
		{name: "alone", base: tinyletHead + "metered: true", want: usual},
		{name: "in a drop-in", base: kubeletHead, dropIns: []string{tinyletHead + "metered: true"}, want: usual},
		{name: "a drop-in takes it back", base: on + kubeletHead, dropIns: []string{tinyletHead + "metered: false"}, want: effect{40, 10 * time.Second, 5 * time.Minute, UpdateIntervals{}, true, false}},
		{name: "zeros as kubeadm writes them", base: on + kubeletHead + "nodeStatusReportFrequency: 0s\nnodeStatusUpdateFrequency: 0s", want: usual},
		{name: "the usual values, but set", base: on + kubeletHead + "nodeLeaseDurationSeconds: 40\nnodeStatusReportFrequency: 5m", want: with(func(e *effect) {
			e.Lease, e.Report, e.Pace = 40, 5*time.Minute, pace(20*time.Second, 24*time.Second)
		})},
		{name: "set in a drop-in", base: on + kubeletHead, dropIns: []string{kubeletHead + "nodeLeaseDurationSeconds: 40"}, want: with(func(e *effect) {
			e.Lease, e.Pace = 40, pace(20*time.Second, 24*time.Second)
		})},
		{name: "set, and reset in a drop-in", base: on + kubeletHead + "nodeLeaseDurationSeconds: 40", dropIns: []string{kubeletHead + "nodeLeaseDurationSeconds: null"}, want: usual},
		{name: "the report follows the look", base: on + kubeletHead + "nodeStatusUpdateFrequency: 1m", want: with(func(e *effect) {
			e.Look, e.Report = time.Minute, time.Minute
		})},
		{name: "a flag of the look", base: on + kubeletHead, args: []string{"--node-status-update-frequency=1m"}, want: with(func(e *effect) { e.Look = time.Minute })},
		{name: "a cluster with patience", base: on + kubeletHead + "nodeLeaseDurationSeconds: 300", want: with(func(e *effect) {
			e.Lease, e.Pace, e.Warned = 300, pace(150*time.Second, 180*time.Second), true
		})},
		{name: "a lease of no use", base: on + kubeletHead + "nodeLeaseDurationSeconds: 10", want: with(func(e *effect) {
			e.Lease, e.Pace, e.Valid = 10, pace(5*time.Second, 6*time.Second), false
		})},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg, warnings := mustBuild(t, row.args, optional(row.base), row.dropIns...)
			kc := &cfg.Kubelet
			got := effect{
				kc.NodeLeaseDurationSeconds, kc.NodeStatusUpdateFrequency.Duration, kc.NodeStatusReportFrequency.Duration,
				cfg.UpdateIntervals(), Validate(cfg) == nil, strings.Contains(fmt.Sprint(warnings), longRenewalInterval),
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// For each lease duration, two renewals fit into it with the jitter of the
// registrar (4 %), and the response to a renewal comes before a ping.
func TestPaceFitsIntoTheLease(t *testing.T) {
	for lease := int32(minMeteredLease); lease < 1000; lease++ {
		cfg, _ := mustBuild(t, nil, optional(tinyletHead+"metered: true"))
		cfg.Kubelet.NodeLeaseDurationSeconds = lease
		p := cfg.UpdateIntervals()
		latest := p.LeaseRenewal + p.LeaseRenewal/25
		if whole := time.Duration(lease) * time.Second; 2*p.LeaseRenewal > whole || latest >= p.PingAfter || p.PingAfter+10*time.Second > whole && lease >= 50 {
			t.Fatalf("lease of %v: %+v", whole, p)
		}
	}
}

func TestMeteredIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		"metered: 1":                   "field metered",
		`metered: "yes"`:               "field metered",
		"meterd: true":                 `unknown field "meterd"`,
		"metered: true\nmetered: true": `"metered" already set`,
	} {
		_, _, err := newFlags(t).build(optional(tinyletHead+text), nil, hostname, 0)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
