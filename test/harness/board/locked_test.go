package board

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func TestReadLock(t *testing.T) {
	sum := strings.Repeat("0a", sha256.Size)
	kernel, crun := sum+"  pool/main/l/linux/linux-image-6.12_1_arm64.deb\n", sum+"  pool/main/c/crun/crun_1.21-1_arm64.deb\n"
	for _, tc := range []struct {
		name, in string
		count    int
	}{
		{"a kernel and a package", kernel + crun, 2},
		{"empty", "", 0},
		{"no kernel", crun + crun, 0},
		{"two kernels", kernel + kernel + crun, 0},
		{"a kernel alone", kernel, 0},
		{"one space", kernel + strings.Replace(crun, "  ", " ", 1), 0},
		{"a short sum", kernel + crun[2:], 0},
		{"no sum", kernel + "zz" + crun[2:], 0},
		{"out of the pool", kernel + sum + "  pool/../../etc/x.deb\n", 0},
		{"absolute", kernel + sum + "  /pool/x.deb\n", 0},
		{"no package", kernel + sum + "  pool/x.tar\n", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := readLock(strings.NewReader(tc.in))
			if len(list) != tc.count || (err == nil) != (tc.count > 0) {
				t.Errorf("%d packages, %v", len(list), err)
			}
		})
	}
}

// Every board has a list, with what its user space begins with.
func TestLocks(t *testing.T) {
	for _, o := range []Options{{Arch: ARM64}, {Arch: ARMv7}, {Arch: ARM64, Systemd: true}, {Arch: ARM64, Systemd: true, Stock: StockDebian}, {Arch: ARM64, Stock: Stock24}} {
		d := newDebs(o, "", nil)
		list, err := locked(d.list)
		if err != nil {
			t.Errorf("%s: %v", o.kind(), err)
			continue
		}
		for _, want := range d.user {
			found := false
			for _, l := range list {
				found = found || strings.HasPrefix(l.file(), want+"_")
			}
			if !found {
				t.Errorf("%s: the list has no %s", o.kind(), want)
			}
		}
	}
	if _, err := (Options{Arch: ARMv7, Systemd: true}).withDefaults(); err == nil {
		t.Error("a board that has no list is taken")
	}
}

// What is listed comes from the mirror, is checked, and is not fetched again; a
// list that says something else is another download.
func TestFetchLocked(t *testing.T) {
	if _, err := os.Stat("/usr/lib/apt/apt-helper"); err != nil {
		t.Skip(err)
	}
	pool := map[string]string{"/pool/k/linux-image-1_1_arm64.deb": "a kernel", "/pool/c/crun_1_arm64.deb": "crun"}
	var asked atomic.Int32
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, ok := pool[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, body)
	}))
	defer mirror.Close()
	line := func(path, content string) lockedPackage {
		return lockedPackage{sum: fmt.Sprintf("%x", sha256.Sum256([]byte(content))), path: path}
	}
	list := []lockedPackage{line("pool/k/linux-image-1_1_arm64.deb", "a kernel"), line("pool/c/crun_1_arm64.deb", "crun")}
	d := &debs{arch: arches[ARM64], dir: t.TempDir(), say: newProgress(nil)}
	if err := d.configure(mirror.URL); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p, err := d.fetchLocked(context.Background(), mirror.URL, list)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(p.Kernel) != "linux-image-1_1_arm64.deb" || len(p.User) != 1 || filepath.Base(p.User[0]) != "crun_1_arm64.deb" {
			t.Errorf("got %+v", p)
		}
		if err := d.record(list, p); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != int32(len(list)) {
		t.Errorf("the mirror was asked %d times for %d packages", n, len(list))
	}
	if _, err := d.recorded(list); err != nil {
		t.Errorf("what is there: %v", err)
	}
	for name, bad := range map[string]lockedPackage{
		"gone":  line("pool/c/crun_2_arm64.deb", "crun"),
		"other": {sum: list[0].sum, path: list[1].path},
	} {
		list := []lockedPackage{list[0], bad}
		if _, err := d.fetchLocked(context.Background(), mirror.URL, list); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := d.recorded([]lockedPackage{list[0], line("pool/c/crun_2_arm64.deb", "crun")}); err == nil {
		t.Error("another list takes what is there")
	}
}

// The packages for images have the program and what it is linked with.
func TestImageLists(t *testing.T) {
	for name, programs := range map[string][]string{"nftables": {"nftables_", "libnftables1_", "libc6_"}, "bash": {"bash-static_"}} {
		f, err := locks.Open("packages/arm64-" + name)
		if err != nil {
			t.Fatal(err)
		}
		list, err := readList(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		for _, want := range programs {
			if !slices.ContainsFunc(list, func(l lockedPackage) bool { return strings.HasPrefix(l.file(), want) }) {
				t.Errorf("the list of %s has no %s", name, want)
			}
		}
	}
}
