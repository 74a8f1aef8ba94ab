package link

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/tinylet/tinylet/net/netns"
)

func TestSysctl(t *testing.T) {
	h, ns := opened(t)
	if err := h.CreateVeth(Veth{Name: "eth0.100", Peer: Peer{Name: "two"}}); err != nil {
		t.Fatal(err)
	}
	outside, err := Sysctl("net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	if err := netns.Do(ns, func() error {
		for _, c := range []struct{ key, value, want string }{
			{"net/ipv4/ip_forward", "1", "1"},
			{"net/ipv4/ip_forward", "0", "0"},
			{"net/ipv4/conf/eth0.100/rp_filter", "2", "2"},
			{"net/ipv4/ip_local_port_range", "20000 30000", "20000\t30000"},
			{"net/ipv4/ip_local_reserved_ports", "1,5-7", "1,5-7"},
			{"net/ipv4/ip_local_reserved_ports", "", ""},
			{"net/ipv6/conf/all/forwarding", "1", "1"},
			{"net/ipv4/route/flush", "1", ""}, // it can only be written
		} {
			for range 2 {
				if err := SetSysctl(c.key, c.value); err != nil {
					t.Error(err)
				}
			}
			if got, err := Sysctl(c.key); got != c.want || err != nil && !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s is %q, %v", c.key, got, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if now, err := Sysctl("net/ipv4/ip_forward"); err != nil || now != outside {
		t.Errorf("outside it was %q and is %q, %v", outside, now, err)
	}
}

func TestSysctlRefuses(t *testing.T) {
	for _, key := range []string{
		"", "net", "net.", "net.ipv4.ip_forward", "net/", "kernel.hostname", "/net/ipv4/ip_forward", "net/../kernel/hostname", "net/../../1/comm",
		"net//../../kernel/hostname", "net.ipv4", "net/ipv4/\x00", "ipv4.ip_forward",
	} {
		if v, err := Sysctl(key); err == nil {
			t.Errorf("%q is %q", key, v)
		}
		if err := SetSysctl(key, "x"); err == nil {
			t.Errorf("%q was set", key)
		}
	}
	if _, err := Sysctl("net/ipv4/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
	if err := SetSysctl("net/ipv4/none", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
}

// A setting that is as it should be is not written: root may not write this.
func TestSysctlWritesNothing(t *testing.T) {
	_, ns := opened(t)
	const key = "net/ipv4/tcp_available_congestion_control"
	if info, err := os.Stat("/proc/sys/net/ipv4/tcp_available_congestion_control"); err != nil || info.Mode().Perm()&0o222 != 0 {
		t.Fatalf("%v, %v: the kernel lets it be written, and another setting has to be found for this test", info, err)
	}
	if err := netns.Do(ns, func() error {
		have, err := Sysctl(key)
		if err != nil {
			return err
		}
		if err := SetSysctl(key, have); err != nil {
			t.Error(err)
		}
		if err := SetSysctl(key, "other"); err == nil {
			t.Error("it was written")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
