package pod

import "testing"

func TestSysctlName(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "kernel": "kernel", "net.ipv4.conf.eno2/100.rp_filter": "net.ipv4.conf.eno2/100.rp_filter",
		"net/ipv4/conf/eno2.100/rp_filter": "net.ipv4.conf.eno2/100.rp_filter", "kernel/shm_rmid_forced": "kernel.shm_rmid_forced",
	} {
		if got := SysctlName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
