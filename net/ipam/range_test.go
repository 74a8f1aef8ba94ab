package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// parseRange reads "prefix gateway", without a gateway for zero.
func parseRange(s string) (r Range) {
	prefix, gateway, _ := strings.Cut(s, " ")
	r.Prefix, _ = netip.ParsePrefix(prefix)
	r.Gateway, _ = netip.ParseAddr(gateway)
	return r
}

func TestComplete(t *testing.T) {
	for in, want := range map[string]string{
		"10.42.0.0/24":            "10.42.0.0/24 10.42.0.1 10.42.0.1 10.42.0.254",
		"10.42.0.0/30":            "10.42.0.0/30 10.42.0.1 10.42.0.1 10.42.0.2",
		"10.42.0.8/30 10.42.0.10": "10.42.0.8/30 10.42.0.10 10.42.0.9 10.42.0.10",
		"10.0.0.0/8 10.1.2.3":     "10.0.0.0/8 10.1.2.3 10.0.0.1 10.255.255.254",
		"128.0.0.0/1":             "128.0.0.0/1 128.0.0.1 128.0.0.1 255.255.255.254",
		"fd00::/126":              "fd00::/126 fd00::1 fd00::1 fd00::3",
		"fd00::/64":               "fd00::/64 fd00::1 fd00::1 fd00::ffff:ffff:ffff:ffff",
		"8000::/1":                "8000::/1 8000::1 8000::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		"fd00::/48":               "fd00::/48 fd00::1 fd00::1 fd00::ffff:ffff:ffff:ffff:ffff",
	} {
		c, err := parseRange(in).Complete()
		if err != nil {
			t.Fatal(err)
		}
		low, high := c.hosts()
		if got := fmt.Sprintf("%s %s %s %s", c.Prefix, c.Gateway, low, high); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
		if !c.isHost(low) || !c.isHost(high) || c.isHost(low.Prev()) || c.isHost(high.Next()) {
			t.Errorf("%q: not exactly the addresses from %s to %s are host addresses", in, low, high)
		}
	}
}

func TestValidateRejects(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "no valid prefix",
		"10.42.0.0/31":                  "too small: use a /30",
		"10.42.0.0/32":                  "too small",
		"fd00::/127":                    "too small: use a /126",
		"fd00::/128":                    "too small",
		"10.42.0.1/24":                  "write 10.42.0.0/24",
		"fd00::1/64":                    "write fd00::/64",
		"::ffff:10.0.0.0/104":           "write it as IPv4",
		"0.0.0.0/0":                     "not usable for hosts",
		"::/0":                          "not usable for hosts",
		"127.0.0.0/8":                   "not usable for hosts",
		"224.0.0.0/8":                   "not usable for hosts",
		"10.42.0.0/24 10.43.0.1":        "gateway 10.43.0.1 is not between 10.42.0.1 and 10.42.0.254",
		"10.42.0.0/24 10.42.0.0":        "gateway",
		"10.42.0.0/24 10.42.0.255":      "gateway",
		"10.42.0.0/24 fd00::1":          "gateway",
		"fd00::/64 fd00::":              "gateway",
		"fd00::/64 fd00::1%eth0":        "gateway",
		"10.42.0.0/24 ::ffff:10.42.0.1": "gateway",
	} {
		if _, err := parseRange(in).Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

// A walk returns every address once.
func TestWalk(t *testing.T) {
	for in, want := range map[string]int{
		"10.42.0.0/30": 2, "10.42.0.0/29": 6, "10.42.0.0/24": 254, "10.0.0.0/20": 4094,
		"fd00::/126": 3, "fd00::/120": 255, "fd00::ffff:ffff:ffff:ff00/120": 255,
	} {
		r, err := parseRange(in).Complete()
		if err != nil {
			t.Fatal(err)
		}
		for key := range 50 {
			seen := map[netip.Addr]bool{}
			for a := range r.walk(fmt.Sprint(key)) {
				if seen[a] || !r.isHost(a) {
					t.Fatalf("%s, key %d: %s, seen %v", in, key, a, seen[a])
				}
				seen[a] = true
			}
			if len(seen) != want {
				t.Errorf("%s, key %d: %d of %d", in, key, len(seen), want)
			}
		}
	}
}

func TestWalkOfLargeRanges(t *testing.T) {
	for in, want := range map[string]uint64{
		"fd00::/64": 1 << 32, "fd00::/96": 1<<32 - 1, "fd00::/97": 1<<31 - 1, "8000::/1": 1 << 32, "128.0.0.0/1": 1<<31 - 2,
	} {
		r, err := parseRange(in).Complete()
		if err != nil {
			t.Fatal(err)
		}
		if r.size() != want {
			t.Errorf("%s: %d addresses, want %d", in, r.size(), want)
		}
		if last := r.host(want - 1); !r.isHost(last) {
			t.Errorf("%s: the last one is %s", in, last)
		}
		n := 0
		for a := range r.walk("key") {
			if n++; !r.isHost(a) {
				t.Fatalf("%s: %s", in, a)
			}
			if n == 1000 {
				break
			}
		}
	}
}

// The order of the addresses is that of all versions, so that a pod keeps its address.
func TestWalkIsStable(t *testing.T) {
	for in, want := range map[string]string{"10.42.0.0/24": "10.42.0.249 10.42.0.174 10.42.0.99", "fd00::/64": "fd00::eec:cbdd fd00::7c6a:fcc fd00::e9e7:53bb"} {
		r, err := parseRange(in).Complete()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for a := range r.walk("uid") {
			if got = append(got, a.String()); len(got) == 3 {
				break
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %s, want %s", in, text, want)
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
		for a := range r.walk(fmt.Sprint(key)) {
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
	for _, s := range []string{"10.42.0.0/24", "fd00::/64 fd00::7", "128.0.0.0/1", "::/1"} {
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
		low, high := r.hosts()
		n := 0
		for a := range r.walk(s) {
			if !r.Prefix.Contains(a) || a.Less(low) || high.Less(a) {
				t.Fatalf("%v gives %s", r, a)
			}
			if n++; n == 300 {
				break
			}
		}
	})
}

// Contains reports whether an address may be allocated from a range.
func (r Range) Contains(a netip.Addr) bool {
	c, err := r.Complete()
	return err == nil && c.allocatable(a)
}
