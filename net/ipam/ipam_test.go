package ipam

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var cmpAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func open(t testing.TB, dir, boot string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, BootID: boot})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func ranges(prefixes ...string) []Range {
	var list []Range
	for _, p := range prefixes {
		list = append(list, Range{Prefix: netip.MustParsePrefix(p)})
	}
	return list
}

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func allocate(t testing.TB, s *Store, r Request) Lease {
	t.Helper()
	l, err := s.Allocate(r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func leases(t testing.TB, s *Store) []Lease {
	t.Helper()
	l, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// files returns all names in the boot's directory.
func files(t testing.TB, s *Store) []string {
	t.Helper()
	var found []string
	for _, root := range []string{s.owners.Name(), s.links.Name()} {
		entries, err := os.ReadDir(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			found = append(found, e.Name())
		}
	}
	return found
}

func TestAllocateAndRelease(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	want := Request{Owner: "c1/eth0", Key: "uid1", Pod: "default/web", Ranges: ranges("10.42.0.0/24", "fd00:42::/64"), Detail: []byte("\x00\xff")}
	l := allocate(t, s, want)
	if l.Owner != want.Owner || l.Key != "uid1" || l.Pod != "default/web" || l.Boot != "a" || string(l.Detail) != "\x00\xff" ||
		time.Since(l.Time) > time.Minute || len(l.Addresses) != 2 || !want.Ranges[0].Contains(l.Addresses[0]) || !want.Ranges[1].Contains(l.Addresses[1]) {
		t.Fatalf("lease: %+v", l)
	}
	again := want
	again.Detail = []byte("other")
	if diff := cmp.Diff(l, allocate(t, s, again), cmpAddr); diff != "" {
		t.Errorf("taken again: %s", diff)
	}
	got, err := s.Get(want.Owner)
	if err != nil || !cmp.Equal(l, got, cmpAddr) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := s.SetDetail(want.Owner, []byte("ports")); err != nil {
		t.Fatal(err)
	}
	l.Detail = []byte("ports")
	if list := leases(t, s); len(list) != 1 || !cmp.Equal(l, list[0], cmpAddr) {
		t.Errorf("all: %+v", list)
	}
	for range 2 {
		if err := s.Release(want.Owner); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Get(want.Owner); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get after release: %v", err)
	}
	if err := s.SetDetail(want.Owner, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("amend after release: %v", err)
	}
	if left := files(t, s); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// A link takes no block of its own if the file system stores short targets in the inode.
func TestLinkIsShort(t *testing.T) {
	if n := len(linkTarget(fileName("x"))); n > 59 {
		t.Errorf("a link's target has %d bytes", n)
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "leases")
	s := open(t, dir, "a")
	allocate(t, s, Request{Owner: "o", Ranges: ranges("10.0.0.0/29")})
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenRejects(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"no folder":     {BootID: "a"},
		"a file":        {Dir: file, BootID: "a"},
		"climbing boot": {Dir: t.TempDir(), BootID: "../x"},
		"long boot":     {Dir: t.TempDir(), BootID: strings.Repeat("a", 65)},
	} {
		if _, err := Open(c); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	s := open(t, t.TempDir(), "")
	kernel, err := os.ReadFile(bootIDFile)
	if err != nil || s.boot != strings.TrimSpace(string(kernel)) {
		t.Errorf("boot %q, %v", s.boot, err)
	}
}

func TestAllocateRejects(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	net := ranges("10.42.0.0/24")
	for name, r := range map[string]Request{
		"no owner":             {Ranges: net},
		"owner not UTF-8":      {Owner: "\xff", Ranges: net},
		"pod not UTF-8":        {Owner: "o", Pod: "\xff", Ranges: net},
		"no range":             {Owner: "o"},
		"many ranges":          {Owner: "o", Ranges: slices.Repeat(net, 17)},
		"bad range":            {Owner: "o", Ranges: ranges("10.42.0.0/31")},
		"requested outside":    {Owner: "o", Ranges: net, Addresses: addrs("10.43.0.5")},
		"requested gateway":    {Owner: "o", Ranges: net, Addresses: addrs("10.42.0.1")},
		"requested network":    {Owner: "o", Ranges: net, Addresses: addrs("10.42.0.0")},
		"requested broadcast":  {Owner: "o", Ranges: net, Addresses: addrs("10.42.0.255")},
		"requested twice":      {Owner: "o", Ranges: net, Addresses: addrs("10.42.0.5", "10.42.0.5")},
		"requested mapped":     {Owner: "o", Ranges: net, Addresses: addrs("::ffff:10.42.0.5")},
		"requested with zone":  {Owner: "o", Ranges: ranges("fd00::/64"), Addresses: addrs("fd00::5%eth0")},
		"requested is nothing": {Owner: "o", Ranges: net, Addresses: []netip.Addr{{}}},
		"too much detail":      {Owner: "o", Ranges: net, Detail: make([]byte, maxFile)},
	} {
		if l, err := s.Allocate(r); err == nil {
			t.Errorf("%s: took %+v", name, l)
		}
		if left := files(t, s); len(left) != 0 {
			t.Errorf("%s: left %q", name, left)
		}
	}
	allocate(t, s, Request{Owner: "o", Ranges: net, Detail: []byte("small")})
	if err := s.SetDetail("o", make([]byte, maxFile)); err == nil {
		t.Error("amended with too much")
	}
	if l, err := s.Get("o"); err != nil || string(l.Detail) != "small" || len(files(t, s)) != 2 {
		t.Errorf("after a refused amendment: %+v, %v, %q", l, err, files(t, s))
	}
}

// An owner may be any text. It does not determine where its file is.
func TestOwnersOfAllKinds(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "a")
	for i, owner := range []string{"../../x", "/", ".", "a\x00b", "a\nb", strings.Repeat("x", 10_000), "ü", "\u2028<&>"} {
		l := allocate(t, s, Request{Owner: owner, Ranges: ranges("10.42.0.0/24")})
		if got, err := s.Get(owner); err != nil || got.Owner != owner || !slices.Equal(got.Addresses, l.Addresses) {
			t.Errorf("%.20q: %+v, %v", owner, got, err)
		}
		if n := len(leases(t, s)); n != i+1 {
			t.Errorf("%d leases after %d", n, i+1)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("folder: %v, %v", entries, err)
	}
}

func TestRequestedAddresses(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	net := ranges("10.42.0.0/24", "fd00::/64")
	want := Request{Owner: "o", Ranges: net, Addresses: addrs("fd00::7", "10.42.0.9", "10.42.0.10")}
	for range 2 {
		if l := allocate(t, s, want); !slices.Equal(l.Addresses, want.Addresses) {
			t.Fatalf("took %v", l.Addresses)
		}
	}
	_, err := s.Allocate(Request{Owner: "p", Ranges: net, Addresses: addrs("10.42.0.11", "10.42.0.10")})
	var taken ErrAllocated
	if !errors.As(err, &taken) || taken != (ErrAllocated{netip.MustParseAddr("10.42.0.10"), "o"}) || !strings.Contains(err.Error(), `already allocated to "o"`) {
		t.Errorf("taken: %v", err)
	}
	if n := len(files(t, s)); n != 4 {
		t.Errorf("files: %q", files(t, s))
	}
	want.Addresses = addrs("10.42.0.10", "10.42.0.12")
	if l := allocate(t, s, want); !slices.Equal(l.Addresses, want.Addresses) {
		t.Errorf("took %v", l.Addresses)
	}
	if n := len(files(t, s)); n != 3 {
		t.Errorf("files: %q", files(t, s))
	}
	// A rejected change leaves the lease unchanged.
	allocate(t, s, Request{Owner: "p", Ranges: net, Addresses: addrs("10.42.0.20")})
	changed := want
	changed.Addresses = addrs("10.42.0.21", "10.42.0.20")
	if _, err := s.Allocate(changed); !errors.As(err, &taken) || taken.Owner != "p" {
		t.Errorf("changed: %v", err)
	}
	if l, err := s.Get("o"); err != nil || !slices.Equal(l.Addresses, want.Addresses) || len(files(t, s)) != 5 {
		t.Errorf("after a refused change: %+v, %v, %q", l, err, files(t, s))
	}
}

func TestExhaustedRangeRecovers(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	net := ranges("10.42.0.0/28")
	seen := map[netip.Addr]bool{}
	for i := range 13 {
		l := allocate(t, s, Request{Owner: fmt.Sprint(i), Ranges: net})
		a := l.Addresses[0]
		if seen[a] || !net[0].Contains(a) {
			t.Fatalf("%s given, seen %v", a, seen)
		}
		seen[a] = true
	}
	_, err := s.Allocate(Request{Owner: "late", Ranges: append(ranges("10.43.0.0/24"), net...)})
	var full ErrExhausted
	if !errors.As(err, &full) || full.Leases != 13 || full.Range.Prefix != net[0].Prefix || full.Range.Gateway != netip.MustParseAddr("10.42.0.1") {
		t.Fatalf("exhausted: %v", err)
	}
	if n := len(files(t, s)); n != 26 {
		t.Errorf("files: %q", files(t, s))
	}
	gone, err := s.Get("7")
	if err := errors.Join(err, s.Release("7")); err != nil {
		t.Fatal(err)
	}
	if l := allocate(t, s, Request{Owner: "late", Ranges: net}); !slices.Equal(l.Addresses, gone.Addresses) {
		t.Errorf("took %v where %v was free", l.Addresses, gone.Addresses)
	}
}

// A lease has two different addresses of two ranges that overlap.
func TestRangesOverlap(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	net := ranges("10.42.0.0/29", "10.42.0.0/29", "10.42.0.0/24")
	l := allocate(t, s, Request{Owner: "o", Ranges: net})
	if err := checkAddresses(l.Addresses); err != nil || len(l.Addresses) != 3 {
		t.Errorf("%v: %v", l.Addresses, err)
	}
	if again := allocate(t, s, Request{Owner: "o", Ranges: net}); !again.same(l) {
		t.Errorf("again: %v", again)
	}
}

func TestRangeChanged(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	old, now := ranges("10.42.0.0/24", "fd00::/64"), ranges("10.43.0.0/24", "fd00::/64")
	first := allocate(t, s, Request{Owner: "a", Key: "a", Ranges: old, Detail: []byte("old")})
	second := allocate(t, s, Request{Owner: "b", Key: "b", Ranges: now})
	if !now[0].Contains(second.Addresses[0]) {
		t.Errorf("new lease: %v", second.Addresses)
	}
	if l, err := s.Get("a"); err != nil || !l.same(first) {
		t.Errorf("old lease: %+v, %v", l, err)
	}
	moved := allocate(t, s, Request{Owner: "a", Key: "a", Ranges: now})
	if !now[0].Contains(moved.Addresses[0]) || moved.Addresses[1] != first.Addresses[1] {
		t.Errorf("moved from %v to %v", first.Addresses, moved.Addresses)
	}
	if got := leases(t, s); len(got) != 2 || len(files(t, s)) != 2+4 {
		t.Errorf("leases %+v, files %q", got, files(t, s))
	}
}

func TestSameAddressAfterReboot(t *testing.T) {
	dir := t.TempDir()
	net := ranges("10.42.0.0/24", "fd00::/64")
	before := allocate(t, open(t, dir, "a"), Request{Owner: "c1", Key: "uid", Ranges: net})
	s := open(t, dir, "b")
	if got := leases(t, s); len(got) != 0 {
		t.Errorf("of the earlier boot: %+v", got)
	}
	if err := s.Release("c1"); err != nil {
		t.Errorf("release of the earlier boot: %v", err)
	}
	// Another owner can get that address.
	allocate(t, s, Request{Owner: "x", Ranges: net, Addresses: before.Addresses})
	if err := s.Release("x"); err != nil {
		t.Fatal(err)
	}
	after := allocate(t, s, Request{Owner: "c2", Key: "uid", Ranges: net})
	if !slices.Equal(before.Addresses, after.Addresses) {
		t.Errorf("%v before, %v after", before.Addresses, after.Addresses)
	}
	gone, err := s.Collect(nil)
	if err != nil || gone != 1 {
		t.Errorf("gone: %d, %v", gone, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || len(leases(t, s)) != 1 {
		t.Errorf("folder: %v, %v", entries, err)
	}
}

func TestCollect(t *testing.T) {
	dir := t.TempDir()
	for _, foreign := range []string{"boot-", "boot-a+b", "lost+found", "notes"} {
		if err := os.Mkdir(filepath.Join(dir, foreign), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir, "a")
	for _, o := range []string{"a", "b", "c"} {
		allocate(t, s, Request{Owner: o, Ranges: ranges("10.42.0.0/24")})
	}
	if gone, err := s.Collect(nil); gone != 0 || err != nil {
		t.Errorf("kept all, gone %d, %v", gone, err)
	}
	// keep may use the store.
	gone, err := s.Collect(func(l Lease) bool {
		if err := s.SetDetail(l.Owner, []byte("seen")); err != nil {
			t.Error(err)
		}
		if l.Owner == "c" {
			if err := s.Release("c"); err != nil {
				t.Error(err)
			}
		}
		return l.Owner == "a"
	})
	if err != nil || gone != 1 {
		t.Errorf("gone %d, %v", gone, err)
	}
	if l := leases(t, s); len(l) != 1 || l[0].Owner != "a" || len(files(t, s)) != 2 {
		t.Errorf("left: %+v, %q", l, files(t, s))
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
		t.Errorf("folder: %v, %v", entries, err)
	}
}

// Collect keeps a lease that replaced, during keep, the one that keep has rejected.
func TestCollectKeepsNewLease(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	r := Request{Owner: "o", Ranges: ranges("10.42.0.0/24")}
	allocate(t, s, r)
	var next Lease
	gone, err := s.Collect(func(Lease) bool {
		if err := s.Release("o"); err != nil {
			t.Error(err)
		}
		next = allocate(t, s, r)
		return false
	})
	if l := leases(t, s); err != nil || gone != 0 || len(l) != 1 || !l[0].same(next) {
		t.Errorf("gone %d, %v, left %+v", gone, err, l)
	}
}
