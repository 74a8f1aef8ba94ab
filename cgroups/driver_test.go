package cgroups

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// driver is what both ways of making groups have, as their users see it.
type driver interface {
	Ensure(path string, r Resources) error
	Delete(path string) error
	Exists(path string) bool
	List(path string) ([]string, error)
	Kill(path string) error
}

// bed is a driver on a fake tree, with the names that groups have with it.
type bed struct {
	*fake
	driver
	// path is the group of these names, name the last part of it.
	path func(names ...string) string
}

func (b *bed) name(names ...string) string { return filepath.Base(b.path(names...)) }

func (b *bed) file(file string, names ...string) string {
	return b.get(b.at(b.path(names...), file))
}

// occupy puts a process into a group, or takes it out.
func (b *bed) occupy(process string, names ...string) {
	b.fake.occupy(b.path(names...), process)
}

func plainPath(names ...string) string { return "/" + filepath.Join(names...) }

func slicePath(names ...string) string { return "/" + folder(strings.Join(names, "-")+sliceSuffix) }

// drivers calls test with each driver.
func drivers(t *testing.T, controllers string, test func(t *testing.T, b *bed)) {
	t.Helper()
	t.Run("files", func(t *testing.T) {
		f := newFake(t, controllers)
		test(t, &bed{fake: f, driver: f.Tree, path: plainPath})
	})
	for _, socket := range []string{BusSocket, privateSocket} {
		t.Run(filepath.Base(socket), func(t *testing.T) {
			m := newManager(t, controllers)
			m.listen(socket)
			s := m.NewSlices(m.root)
			t.Cleanup(s.Close)
			test(t, &bed{fake: m.fake, driver: s, path: slicePath})
		})
	}
}

const all = "cpu memory pids"

// Both drivers do the same, whoever makes the groups.
func TestDrivers(t *testing.T) {
	limits := Resources{CPUWeight: 20, CPUMax: CPUMax{Quota: 20000, Period: 100000}, MemoryMax: 64 << 20, PidsMax: 40}
	for _, row := range []struct {
		name        string
		controllers string
		do          func(t *testing.T, b *bed)
	}{
		{"a group is made with its parents and limits", all, func(t *testing.T, b *bed) {
			must(t, b.Ensure(b.path("a", "b", "c"), limits))
			for file, want := range map[string]string{fileCPUWeight: "20", fileCPUMax: "20000 100000", fileMemoryMax: "67108864", filePidsMax: "40"} {
				if got := b.file(file, "a", "b", "c"); got != want {
					t.Errorf("%s is %q, want %q", file, got, want)
				}
			}
			if got := b.file(fileMemoryMax, "a", "b"); got != "max" {
				t.Errorf("the parent's memory.max is %q", got)
			}
			if !b.Exists(b.path("a", "b")) || b.Exists(b.path("a", "c")) {
				t.Error("what exists is not what was made")
			}
			must(t, b.Ensure(b.path("a", "b", "d"), Resources{}))
			names, err := b.List(b.path("a", "b"))
			must(t, err)
			if diff := cmp.Diff([]string{b.name("a", "b", "c"), b.name("a", "b", "d")}, names); diff != "" {
				t.Error(diff)
			}
		}},
		{"a limit that is not set stays, and one is taken away", all, func(t *testing.T, b *bed) {
			must(t, b.Ensure(b.path("a"), limits))
			must(t, b.Ensure(b.path("a"), Resources{CPUWeight: 7, MemoryMax: Unlimited, CPUMax: CPUMax{Quota: Unlimited}}))
			for file, want := range map[string]string{fileCPUWeight: "7", fileCPUMax: "max", fileMemoryMax: "max", filePidsMax: "40"} {
				if got := b.file(file, "a"); got != want {
					t.Errorf("%s is %q, want %q", file, got, want)
				}
			}
		}},
		{"a parent is given limits after what is below it", all, func(t *testing.T, b *bed) {
			must(t, b.Ensure(b.path("a", "b"), limits))
			must(t, b.Ensure(b.path("a"), Resources{CPUWeight: 3}))
			if got := b.file(fileCPUWeight, "a"); got != "3" {
				t.Errorf("cpu.weight is %q", got)
			}
		}},
		{"a group is deleted with those below it, once or more", all, func(t *testing.T, b *bed) {
			must(t, b.Delete(b.path("a", "b")))
			must(t, b.Ensure(b.path("a", "b", "c"), limits))
			must(t, b.Ensure(b.path("a", "d"), limits))
			must(t, b.Delete(b.path("a", "b")))
			must(t, b.Delete(b.path("a", "b")))
			if b.Exists(b.path("a", "b")) || !b.Exists(b.path("a", "d")) {
				t.Error("not what was asked for was deleted")
			}
			must(t, b.Ensure(b.path("a", "b"), Resources{MemoryMax: 4096}))
			if got := b.file(fileMemoryMax, "a", "b"); got != "4096" {
				t.Errorf("made anew it has memory.max %q", got)
			}
		}},
		{"a group with a process stays until it is killed", all, func(t *testing.T, b *bed) {
			must(t, b.Ensure(b.path("a", "b"), limits))
			b.occupy("42", "a", "b")
			if err := b.Delete(b.path("a")); !errors.Is(err, ErrBusy) {
				t.Errorf("delete: %v, want ErrBusy", err)
			}
			if !b.Exists(b.path("a", "b")) {
				t.Error("it is gone")
			}
			must(t, b.Kill(b.path("a")))
			if got := b.file(fileKill, "a"); got != "1" {
				t.Errorf("cgroup.kill has %q", got)
			}
			b.occupy("", "a", "b")
			must(t, b.Delete(b.path("a")))
			must(t, b.Kill(b.path("a")))
		}},
		{"a group that was removed from outside comes back", all, func(t *testing.T, b *bed) {
			must(t, b.Ensure(b.path("a", "b"), limits))
			must(t, os.RemoveAll(b.at(b.path("a"))))
			must(t, b.Delete(b.path("a", "b")))
			must(t, b.Ensure(b.path("a", "b"), limits))
			if got := b.file(fileMemoryMax, "a", "b"); got != "67108864" {
				t.Errorf("memory.max is %q", got)
			}
		}},
		{"a controller that is missing is named", "cpu memory", func(t *testing.T, b *bed) {
			err := b.Ensure(b.path("a", "b"), limits)
			if !errors.Is(err, ErrController) || !strings.Contains(err.Error(), "pids") {
				t.Errorf("got %v", err)
			}
			must(t, b.Ensure(b.path("a", "b"), Resources{CPUWeight: 1}))
		}},
		{"what is not there cannot be listed", all, func(t *testing.T, b *bed) {
			if _, err := b.List(b.path("a")); !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v", err)
			}
		}},
		{"the root and what is above it are refused", all, func(t *testing.T, b *bed) {
			for _, path := range []string{"/", "", "/../x", "a/../../b"} {
				if err := b.Delete(path); err == nil {
					t.Errorf("%q was deleted", path)
				}
			}
			if err := b.Ensure("/../x", limits); err == nil {
				t.Error("made above the root")
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) { drivers(t, row.controllers, row.do) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
