package selfprotect

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/cgroups"
)

// Of 96 MiB the agent's service gets 32 and the runtime's 64. The parent cgroups of
// either get all.
func TestShield(t *testing.T) {
	const own, runtime = "/system.slice/tinylet.service", "/system.slice/containerd.service"
	for _, tc := range []struct {
		name, controllers, cgroup string
		has                       map[string]string // memory.min
		want                      []string          // groups that get theirs, the service's first
	}{
		{"a service", "cpu memory", "0::" + own, nil, []string{own, "/system.slice"}},
		{"the second of a slice", "cpu memory", "0::" + runtime, map[string]string{own: "33554432", "/system.slice": "100663296"}, []string{runtime}},
		{"somebody protects more", "cpu memory", "0::" + own, map[string]string{own: "max", "/system.slice": "199999999"}, nil},
		{"somebody protects less", "cpu memory", "0::" + own, map[string]string{own: "1048576"}, []string{own, "/system.slice"}},
		{"a slice of its own", "cpu memory", "0::/a.slice/a-b.slice/x.service", nil, []string{"/a.slice/a-b.slice/x.service", "/a.slice/a-b.slice", "/a.slice"}},
		{"a service of nobody's", "cpu memory", "0::/x.service", nil, nil},
		{"a service in a folder", "cpu memory", "0::/a.slice/b/x.service", nil, nil},
		{"by hand", "cpu memory", "0::/user.slice/user-0.slice/session-1.scope", nil, nil},
		{"the root", "cpu memory", "0::/", nil, nil},
		{"our own group", "cpu memory", "0::" + Cgroup, nil, nil},
		{"beside cgroup v1", "cpu memory", "1:name=systemd:" + own + "\n0::" + own, nil, nil},
		{"no memory controller", "cpu", "0::" + own, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, file := board(t, tc.controllers)
			if err := os.WriteFile(file("proc", "7", "cgroup"), []byte(tc.cgroup+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			for group, least := range tc.has {
				path := file("cgroup", group, "memory.min")
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(least+"\n"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			c.Memory = 512 << 20
			got := make(map[string]string)
			c.SetUnit = func(path string, r cgroups.Resources) error {
				if r.CPUWeight != 0 {
					t.Errorf("%s gets %+v", path, r)
				}
				got[path] = r.Unified["memory.min"]
				return nil
			}
			for _, share := range []uint64{32 << 20, 64 << 20} {
				clear(got)
				if err := c.ProtectUnit(7, share); err != nil {
					t.Fatal(err)
				}
				want := make(map[string]string)
				for i, group := range tc.want {
					if want[group] = "100663296"; i == 0 {
						want[group] = strconv.FormatUint(share, 10)
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// The kernel shows whole pages: a value that is set already is not set again.
func TestShieldOnce(t *testing.T) {
	c, file := board(t, "cpu memory")
	c.Memory = 256<<20 + 4321
	asked := 0
	c.SetUnit = func(path string, r cgroups.Resources) error {
		asked++
		least, err := strconv.ParseUint(r.Unified["memory.min"], 10, 64)
		if err != nil {
			return err
		}
		least -= least % uint64(os.Getpagesize())
		at := file("cgroup", path, "memory.min")
		return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(strconv.FormatUint(least, 10)+"\n"), 0o644))
	}
	if err := os.WriteFile(file("proc", "7", "cgroup"), []byte("0::/system.slice/x.service\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.ProtectUnit(7, 32<<20); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 2 {
		t.Errorf("systemd was asked %d times, want once for the service and once for its slice", asked)
	}
}

// No part of the reserve is assigned twice. The sizes are multiples of any page size.
func TestShares(t *testing.T) {
	for memory, want := range map[uint64][2]uint64{
		0: {}, 220 << 20: {27<<20 + 512<<10, 27<<20 + 512<<10}, 256 << 20: {32 << 20, 32 << 20}, 512 << 20: {32 << 20, 64 << 20}, 8 << 30: {32 << 20, 64 << 20},
	} {
		agent, runtime := SplitProtectedMemory(memory)
		if got := [2]uint64{agent, runtime}; got != want {
			t.Errorf("of %d bytes: %v, want %v", memory, got, want)
		}
		if agent+runtime != ProtectedMemory(memory) {
			t.Errorf("of %d bytes %d and %d are shared of %d", memory, agent, runtime, ProtectedMemory(memory))
		}
	}
}

func TestShieldFails(t *testing.T) {
	c, file := board(t, "cpu memory")
	if err := os.WriteFile(file("proc", "7", "cgroup"), []byte("0::/system.slice/x.service\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.SetUnit = func(string, cgroups.Resources) error { return cgroups.ErrNoSystemd }
	if err := c.ProtectUnit(7, 32<<20); !errors.Is(err, cgroups.ErrNoSystemd) || !strings.Contains(err.Error(), "/system.slice/x.service") {
		t.Errorf("without systemd: %v", err)
	}
	if err := c.ProtectUnit(8, 32<<20); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
}

func TestTop(t *testing.T) {
	c, file := board(t, "cpu memory")
	for cgroup, want := range map[string]string{
		"0::/": "", "0::/tinylet": Cgroup, "0::/system.slice/x.service": "/system.slice", "1:name=systemd:/a\n0::/a": "",
	} {
		if err := os.WriteFile(file("proc", "7", "cgroup"), []byte(cgroup+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := c.TopLevelCgroup(7); got != want {
			t.Errorf("%q: %q, want %q", cgroup, got, want)
		}
	}
	if got := c.TopLevelCgroup(8); got != "" {
		t.Errorf("a process that has ended is in %q", got)
	}
}
