package network

import (
	"slices"
	"testing"
)

func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name, configured string
		files            []string
		ours             bool
		want, shadow     string
	}{
		{name: "nothing", want: "bridge"},
		{name: "ours", files: []string{FileName}, ours: true, want: "bridge"},
		{name: "one of our name that others wrote", files: []string{FileName}, want: "cni"},
		{name: "flannel", files: []string{"10-flannel.conflist"}, want: "cni", shadow: "10-flannel.conflist"},
		{name: "flannel, but we are meant", configured: "routed", files: []string{FileName, "10-flannel.conflist"}, ours: true, want: "routed", shadow: "10-flannel.conflist"},
		{name: "one that comes later", configured: "bridge", files: []string{"99-loopback.conf"}, want: "bridge"},
		{name: "what runtimes do not read", files: []string{".kubernetes-cni-keep", "README", "10-calico.conflist.bak"}, want: "bridge"},
	} {
		t.Run(row.name, func(t *testing.T) {
			others := foreign(slices.Clone(row.files), func() bool { return row.ours })
			if got := SelectMode(row.configured, others); got != row.want {
				t.Errorf("mode %q, want %q", got, row.want)
			}
			if got := shadowing(others); got != row.shadow {
				t.Errorf("shadowed by %q, want %q", got, row.shadow)
			}
		})
	}
}
