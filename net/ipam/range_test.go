package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// parseRange reads "prefix gateway first last", with - for zero.
func parseRange(s string) Range {
	var (
		r Range
		f = append(strings.Fields(s), "-", "-", "-", "-")
	)
	r.Prefix, _ = netip.ParsePrefix(f[0])
	for i, a := range []*netip.Addr{&r.Gateway, &r.First, &r.Last} {
		*a, _ = netip.ParseAddr(f[i+1])
	}
	return r
}

func TestComplete(t *testing.T) {
	for in, want := range map[string]string{
		"10.42.0.0/24":                       "10.42.0.0/24 10.42.0.1 10.42.0.1 10.42.0.254",
		"10.42.0.0/30":                       "10.42.0.0/30 10.42.0.1 10.42.0.1 10.42.0.2",
		"10.42.0.8/30 10.42.0.10":            "10.42.0.8/30 10.42.0.10 10.42.0.9 10.42.0.10",
		"10.0.0.0/8 10.1.2.3 10.5.0.0 -":     "10.0.0.0/8 10.1.2.3 10.5.0.0 10.255.255.254",
		"128.0.0.0/1":                        "128.0.0.0/1 128.0.0.1 128.0.0.1 255.255.255.254",
		"10.42.0.0/24 - - 10.42.0.2":         "10.42.0.0/24 10.42.0.1 10.42.0.1 10.42.0.2",
		"10.42.0.0/24 - 10.42.0.9 10.42.0.9": "10.42.0.0/24 10.42.0.1 10.42.0.9 10.42.0.9",
		"fd00::/126":                         "fd00::/126 fd00::1 fd00::1 fd00::3",
		"fd00::/64":                          "fd00::/64 fd00::1 fd00::1 fd00::ffff:ffff:ffff:ffff",
		"8000::/1":                           "8000::/1 8000::1 8000::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		"fd00::/48":                          "fd00::/48 fd00::1 fd00::1 fd00::ffff:ffff:ffff:ffff:ffff",
	} {
		c, err := parseRange(in).Complete()
		if got := fmt.Sprintf("%s %s %s %s", c.Prefix, c.Gateway, c.First, c.Last); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", in, got, err, want)
		}
	}
}

func TestValidateRejects(t *testing.T) {
	for in, want := range map[string]string{
		"":                                    "no valid prefix",
		"10.42.0.0/31":                        "too small: use a /30",
		"10.42.0.0/32":                        "too small",
		"fd00::/127":                          "too small: use a /126",
		"fd00::/128":                          "too small",
		"10.42.0.1/24":                        "write 10.42.0.0/24",
		"fd00::1/64":                          "write fd00::/64",
		"::ffff:10.0.0.0/104":                 "write it as IPv4",
		"0.0.0.0/0":                           "not usable for hosts",
		"::/0":                                "not usable for hosts",
		"127.0.0.0/8":                         "not usable for hosts",
		"224.0.0.0/8":                         "not usable for hosts",
		"10.42.0.0/24 10.43.0.1":              "gateway 10.43.0.1 is not between",
		"10.42.0.0/24 10.42.0.0":              "gateway",
		"10.42.0.0/24 10.42.0.255":            "gateway",
		"10.42.0.0/24 fd00::1":                "gateway",
		"fd00::/64 fd00::1%eth0":              "gateway",
		"10.42.0.0/24 - 10.42.0.0":            "first address",
		"10.42.0.0/24 - - 10.42.0.255":        "last address",
		"10.42.0.0/24 - 10.42.0.9 10.42.0.8":  "after last address",
		"10.42.0.0/24 - 10.42.0.1 10.42.0.1":  "the only address, 10.42.0.1, is the gateway",
		"10.42.0.0/24 ::ffff:10.42.0.1":       "gateway",
		"10.42.0.0/24 - 10.42.1.1 10.42.1.20": "first address",
	} {
		if _, err := parseRange(in).Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

// A walk returns every address once.
func TestWalk(t *testing.T) {
	for _, in := range []string{"10.42.0.0/30", "10.42.0.0/29", "10.42.0.0/24", "10.0.0.0/20", "fd00::/120", "10.42.0.0/24 - 10.42.0.9 10.42.0.9", "10.42.0.0/24 - 10.42.0.250 -", "fd00::ffff:ffff:ffff:ff00/120"} {
		r, err := parseRange(in).Complete()
		if err != nil {
			t.Fatal(err)
		}
		for key := range 50 {
			seen := map[netip.Addr]bool{}
			w := newWalk(r, fmt.Sprint(key))
			for a, ok := w.next(); ok; a, ok = w.next() {
				if seen[a] || !within(a, r.First, r.Last) {
					t.Fatalf("%s, key %d: %s, seen %v", in, key, a, seen[a])
				}
				seen[a] = true
			}
			if n := distance(r.First, r.Last) + 1; uint64(len(seen)) != n {
				t.Errorf("%s, key %d: %d of %d", in, key, len(seen), n)
			}
		}
	}
}

func TestWalkOfLargeRanges(t *testing.T) {
	for in, want := range map[string]uint64{
		"fd00::/64": 1 << 32, "fd00::/96": 1<<32 - 1, "fd00::/97": 1<<31 - 1, "8000::/1": 1 << 32,
		"fd00::/16 - fd00::ffff:ffff:ffff:fff0": 1 << 32, "128.0.0.0/1": 1<<31 - 2, "fd00::/48 - fd00::fffe - ": 1 << 32,
	} {
		r, err := parseRange(in).Complete()
		if err != nil {
			t.Fatal(err)
		}
		w := newWalk(r, "key")
		if w.size != want {
			t.Errorf("%s: %d addresses, want %d", in, w.size, want)
		}
		for range 1000 {
			if a, ok := w.next(); !ok || !within(a, r.First, r.Last) {
				t.Fatalf("%s: %s, %v", in, a, ok)
			}
		}
	}
}

// In a range of which nine tenths are allocated, a walk finds a free address after about
// ten steps, not fifty.
func TestWalkIsShort(t *testing.T) {
	r, err := parseRange("10.42.0.0/22").Complete()
	if err != nil {
		t.Fatal(err)
	}
	taken, steps, late := map[netip.Addr]bool{}, 0, 0
	for key := 0; len(taken) < 920; key++ {
		w := newWalk(r, fmt.Sprint(key))
		for a, ok := w.next(); ok; a, ok = w.next() {
			if len(taken) > 900 {
				steps++
			}
			if !taken[a] {
				taken[a] = true
				break
			}
		}
		if len(taken) > 900 {
			late++
		}
	}
	if mean := steps / late; mean > 20 {
		t.Errorf("%d steps for each", mean)
	}
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"10.42.0.0/24", "fd00::/64 - fd00::ffff:ffff:ffff:fff0 -", "128.0.0.0/1 - 255.255.255.250", "::/1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseRange(s).Complete()
		if err != nil {
			return
		}
		if again, err := r.Complete(); err != nil || again != r {
			t.Fatalf("%v completed again: %v, %v", r, again, err)
		}
		low, high := r.Prefix.Addr(), lastAddress(r.Prefix)
		w := newWalk(r, s)
		for range 300 {
			a, ok := w.next()
			if !ok {
				break
			}
			if !r.Prefix.Contains(a) || a == low || a.Is4() && a == high || a.Less(r.First) || r.Last.Less(a) {
				t.Fatalf("%v gives %s", r, a)
			}
		}
	})
}

// Contains reports whether an address may be allocated from a range.
func (r Range) Contains(a netip.Addr) bool {
	c, err := r.Complete()
	return err == nil && c.allocatable(a)
}
