package ipam

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"runtime"
	"slices"
	"testing"
)

// killed runs a call and ends it after n steps as SIGKILL does: its files are closed and
// nothing else is done. It returns the name of the last step, "" if the call has completed.
func killed(s *Store, n int, call func(s *Store)) (at string) {
	dying := *s
	dying.step = func(name string) {
		if n--; n < 0 {
			at = name
			runtime.Goexit()
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		call(&dying)
	}()
	<-done
	return at
}

// crash is a state of the store and a call that is killed in it.
type crash struct {
	name   string
	before func(t *testing.T, s *Store)
	call   func(s *Store)
}

// The range is so small that "me" and "you" exhaust it. So another call needs the addresses
// that a killed call leaves.
var (
	small = Range{Prefix: netip.MustParsePrefix("fd01::/126")}   // two addresses
	other = Range{Prefix: netip.MustParsePrefix("10.43.0.0/30")} // one address
	dual  = Range{Prefix: netip.MustParsePrefix("fd00::/126")}
)

func request(owner string, r ...Range) Request {
	return Request{Owner: owner, Key: owner, Ranges: r, Detail: []byte("of " + owner)}
}

var crashes = []crash{
	{"allocate", nil, func(s *Store) { _, _ = s.Allocate(request("me", small, dual)) }},
	{"allocate requested", nil, func(s *Store) {
		_, _ = s.Allocate(Request{Owner: "me", Ranges: []Range{small}, Addresses: addrs("fd01::3", "fd01::2")})
	}},
	{"reallocate", allocated("me", small, dual), func(s *Store) { _, _ = s.Allocate(request("me", other, dual)) }},
	{"release", allocated("me", small, dual), func(s *Store) { _ = s.Release("me") }},
	{"set detail", allocated("me", small, dual), func(s *Store) { _ = s.SetDetail("me", []byte("amended")) }},
	{"collect", allocated("me", small, dual), func(s *Store) {
		_, _ = s.Collect(func(l Lease) bool { return l.Owner != "me" })
	}},
	{"exhausted", allocated("you", small, dual), func(s *Store) {
		_, _ = s.Allocate(request("me", dual, small, other, small))
	}},
	{"allocate what killed calls reserved", func(t *testing.T, s *Store) {
		for _, o := range []string{"gone1", "gone2"} {
			if at := killed(s, 1, func(s *Store) { _, _ = s.Allocate(request(o, small)) }); at != "reserved" {
				t.Fatalf("killed at %q", at)
			}
		}
	}, func(s *Store) { _, _ = s.Allocate(request("me", small)) }},
	{"collect what killed calls left", func(t *testing.T, s *Store) {
		allocated("me", small)(t, s)
		killed(s, 2, func(s *Store) { _, _ = s.Allocate(request("me", other)) })
		killed(s, 1, func(s *Store) { _, _ = s.Allocate(request("gone", small)) })
	}, func(s *Store) { _, _ = s.Collect(nil) }},
}

func allocated(owner string, r ...Range) func(t *testing.T, s *Store) {
	return func(t *testing.T, s *Store) { allocate(t, s, request(owner, r...)) }
}

// follower is a call after the killed one, with its checks.
type follower struct {
	name string
	call func(t *testing.T, s *Store)
}

var followers = []follower{
	{"allocate by the same owner", func(t *testing.T, s *Store) {
		l := allocate(t, s, request("me", small))
		if got, err := s.Get("me"); err != nil || !got.same(l) {
			t.Errorf("got %+v, %v for %+v", got, err, l)
		}
	}},
	{"allocate from another range by the same owner", func(t *testing.T, s *Store) {
		if l := allocate(t, s, request("me", other)); l.Addresses[0] != netip.MustParseAddr("10.43.0.2") {
			t.Errorf("took %+v", l)
		}
	}},
	// At most one other lease is in the small range, so one is to be had.
	{"allocate by another owner", func(t *testing.T, s *Store) {
		if len(leases(t, s)) == 2 || wants(t, s, "me", 2) {
			return
		}
		allocate(t, s, request("third", small))
	}},
	{"release", func(t *testing.T, s *Store) {
		had, err := s.Get("me")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := s.Release("me"); err != nil {
			t.Errorf("release %+v: %v", had, err)
		}
		if _, err := s.Get("me"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("get after release: %v", err)
		}
	}},
	{"set detail", func(t *testing.T, s *Store) {
		_, had := s.Get("me")
		err := s.SetDetail("me", []byte("new"))
		l, _ := s.Get("me")
		if (had == nil) != (err == nil) || err == nil && string(l.Detail) != "new" || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("amend: %v, had %v, now %+v", err, had, l)
		}
	}},
	{"collect", func(t *testing.T, s *Store) {
		before := leases(t, s)
		if _, err := s.Collect(nil); err != nil {
			t.Error(err)
		}
		if after := leases(t, s); !slices.EqualFunc(before, after, Lease.same) {
			t.Errorf("leases before %+v, after %+v", before, after)
		}
		tidy(t, s)
	}},
	{"collect all", func(t *testing.T, s *Store) {
		before := leases(t, s)
		gone, err := s.Collect(func(Lease) bool { return false })
		if err != nil || gone < len(before) || len(files(t, s)) != 0 {
			t.Errorf("gone %d, %v, left %q", gone, err, files(t, s))
		}
	}},
}

func wants(t *testing.T, s *Store, owner string, n int) bool {
	l, err := s.Get(owner)
	return err == nil && len(l.Addresses) == n && small.Contains(l.Addresses[0]) && small.Contains(l.Addresses[1])
}

// unique checks that no two leases have the same address.
func unique(t *testing.T, s *Store) {
	t.Helper()
	seen := map[netip.Addr]string{}
	for _, l := range leases(t, s) {
		for _, a := range l.Addresses {
			if who, ok := seen[a]; ok {
				t.Errorf("%s is of %s and of %s", a, who, l.Owner)
			}
			seen[a] = l.Owner
		}
	}
}

// tidy checks that the store has a file for each lease, a link for each address, and no
// other files.
func tidy(t *testing.T, s *Store) {
	t.Helper()
	n := 0
	for _, l := range leases(t, s) {
		n += 1 + len(l.Addresses)
	}
	if left := files(t, s); len(left) != n {
		t.Errorf("leases %+v, files %q", leases(t, s), left)
	}
}

// Every call is killed after every step, and followed by every other call.
func TestKilled(t *testing.T) {
	for _, c := range crashes {
		for _, f := range followers {
			for n := 0; ; n++ {
				s := open(t, t.TempDir(), "a")
				if c.before != nil {
					c.before(t, s)
				}
				at := killed(s, n, c.call)
				t.Run(fmt.Sprintf("%s/%d %s/%s", c.name, n, at, f.name), func(t *testing.T) {
					unique(t, s)
					f.call(t, s)
					unique(t, s)
					if _, err := s.Collect(nil); err != nil {
						t.Error(err)
					}
					unique(t, s)
					tidy(t, s)
				})
				if at == "" {
					break
				}
			}
		}
	}
}

// The address that a killed Release has freed is allocated to another owner. The next
// Release does not free it.
func TestReleaseKilledAndAddressGiven(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	first := allocate(t, s, request("me", small, dual))
	if at := killed(s, 0, func(s *Store) { _ = s.Release("me") }); at != "freed" {
		t.Fatalf("killed at %q", at)
	}
	next := allocate(t, s, Request{Owner: "you", Ranges: []Range{small}, Addresses: first.Addresses[:1]})
	if err := s.Release("me"); err != nil {
		t.Error(err)
	}
	if got := leases(t, s); len(got) != 1 || !got[0].same(next) {
		t.Errorf("left %+v", got)
	}
	tidy(t, s)
}

// Collect does not free such an address either.
func TestCollectOfIncompleteRelease(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	first := allocate(t, s, request("me", small, dual))
	killed(s, 0, func(s *Store) { _ = s.Release("me") })
	next := allocate(t, s, Request{Owner: "you", Ranges: []Range{small}, Addresses: first.Addresses[:1]})
	gone, err := s.Collect(nil)
	if err != nil || gone != 1 {
		t.Errorf("gone %d, %v", gone, err)
	}
	if got := leases(t, s); len(got) != 1 || !got[0].same(next) {
		t.Errorf("left %+v", got)
	}
	tidy(t, s)
}

// A lease that a killed Release has partly freed does not become valid again when its owner
// reserves the same addresses and is killed.
func TestReleasedStaysReleased(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	r := request("me", small, dual)
	allocate(t, s, r)
	for n := range 2 {
		killed(s, n, func(s *Store) { _ = s.Release("me") })
	}
	for n := range 6 {
		at := killed(s, n, func(s *Store) { _, _ = s.Allocate(r) })
		if _, err := s.Get("me"); !errors.Is(err, fs.ErrNotExist) && at != "written" {
			t.Errorf("killed at %d %q: %v", n, at, err)
		}
		if at == "written" {
			return
		}
	}
	t.Error("nothing was written")
}

// Release frees the addresses that a killed Allocate of its owner has reserved.
func TestReleaseOfIncompleteAllocate(t *testing.T) {
	for n := range 3 {
		s := open(t, t.TempDir(), "a")
		allocate(t, s, request("you", other))
		killed(s, n, func(s *Store) { _, _ = s.Allocate(request("me", small, dual)) })
		if err := s.Release("me"); err != nil || len(files(t, s)) != 2 {
			t.Errorf("killed at %d: %v, left %q", n, err, files(t, s))
		}
	}
}

// Release removes all files of an owner whose SetDetail was killed.
func TestReleaseOfIncompleteSetDetail(t *testing.T) {
	for n := 0; ; n++ {
		s := open(t, t.TempDir(), "a")
		allocated("me", small, dual)(t, s)
		at := killed(s, n, func(s *Store) { _ = s.SetDetail("me", []byte("amended")) })
		if err := s.Release("me"); err != nil || len(files(t, s)) != 0 {
			t.Errorf("killed at %q: %v, left %q", at, err, files(t, s))
		}
		if at == "" {
			return
		}
	}
}

// Allocate after a killed one of the same owner returns the same address, and no address
// is lost.
func TestAllocateKilledLosesNothing(t *testing.T) {
	for n := range 3 {
		s := open(t, t.TempDir(), "a")
		r := request("me", small, dual)
		if at := killed(s, n, func(s *Store) { _, _ = s.Allocate(r) }); at == "" {
			t.Fatal("not killed")
		}
		allocate(t, s, r)
		tidy(t, s)
	}
}

// Collect does not free what another call is creating.
func TestCollectKeepsLockedOwners(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	for _, at := range []string{"locked", "reserved", "written"} {
		making := *s
		making.step = func(name string) {
			if name != at {
				return
			}
			if _, err := s.Collect(func(Lease) bool { return false }); err != nil {
				t.Error(err)
			}
			if name != "reserved" {
				return
			}
			for _, owner := range []string{"x", "y"} { // one is left, the second finds none
				_, err := s.Allocate(Request{Owner: owner, Ranges: []Range{small}})
				if full := errors.As(err, new(ErrExhausted)); full != (owner == "y") {
					t.Errorf("%s: %v", owner, err)
				}
			}
		}
		l := allocate(t, &making, request("me", small))
		if got, err := s.Get("me"); err != nil || !got.same(l) {
			t.Errorf("%s: %+v, %v", at, got, err)
		}
		unique(t, s)
		if _, err := s.Collect(func(Lease) bool { return false }); err != nil || len(files(t, s)) != 0 {
			t.Errorf("%s: %v, left %q", at, err, files(t, s))
		}
	}
}
