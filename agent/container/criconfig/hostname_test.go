package criconfig

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestKernelHostname(t *testing.T) {
	yes := true
	ptr := func(s string) *string { return &s }
	long := strings.Repeat("a", 62)
	for _, tc := range []struct {
		name string
		pod  string
		spec v1.PodSpec
		want string
		fail string
	}{
		{"the pod's", "web-board", v1.PodSpec{}, "web-board", ""},
		{"its own", "p", v1.PodSpec{Hostname: "h"}, "h", ""},
		{"long", long + ".tail", v1.PodSpec{}, long, ""},
		{"subdomain alone", "p", v1.PodSpec{Subdomain: "s"}, "p", ""},
		{"FQDN", "p", v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: &yes}, "p.s.ns.svc.cluster.local", ""},
		{"FQDN without a subdomain", "p", v1.PodSpec{SetHostnameAsFQDN: &yes}, "p", ""},
		{"FQDN too long", long, v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: &yes}, "", "FQDN"},
		{"overridden", "p", v1.PodSpec{Hostname: "h", Subdomain: "s", HostnameOverride: ptr("a.b")}, "a.b", ""},
		{"bad", "p", v1.PodSpec{Hostname: "h.h"}, "", "pod Hostname"},
		{"bad subdomain", "p", v1.PodSpec{Subdomain: "a\nb"}, "", "pod Subdomain"},
		{"bad override", "p", v1.PodSpec{HostnameOverride: ptr("-")}, "", "pod HostnameOverride"},
		{"nothing left", strings.Repeat("-", 70), v1.PodSpec{}, "", "only dashes and dots remain"},
		{"host network", "p", v1.PodSpec{HostNetwork: true, Hostname: "h.h"}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: tc.spec}
			p.Name, p.Namespace = tc.pod, "ns"
			got, err := SandboxConfig(SandboxInput{Pod: p, Node: board()})
			if tc.fail != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fail) {
					t.Errorf("got %v, want an error with %q", err, tc.fail)
				}
				return
			}
			if err != nil || got.GetHostname() != tc.want {
				t.Errorf("got %q, %v, want %q", got.GetHostname(), err, tc.want)
			}
		})
	}
}
