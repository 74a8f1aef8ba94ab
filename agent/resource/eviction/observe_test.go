package eviction

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
	"github.com/tinylet/tinylet/cgroups"
)

// A file system that cannot be measured does not hide the others.
func TestOneUnknownFileSystem(t *testing.T) {
	for _, tc := range []struct {
		failing string
		known   []evictionapi.Signal
	}{
		{"/node", []evictionapi.Signal{evictionapi.ImageFsAvailable, evictionapi.ContainerFsAvailable}},
		{"/images", []evictionapi.Signal{evictionapi.NodeFsAvailable, evictionapi.ContainerFsAvailable}},
		{"/layers", []evictionapi.Signal{evictionapi.NodeFsAvailable, evictionapi.ImageFsAvailable}},
	} {
		failed := errors.New("no such file or directory")
		m := New(Config{RootDir: "/node", Space: func(path string) (diskusage.Space, error) {
			if path == tc.failing {
				return diskusage.Space{}, failed
			}
			return diskusage.Space{Available: 1, Capacity: 2}, nil
		}})
		var o evictionapi.Observations
		fs := &fileSystems{layout: policy.SplitFs, images: "/images", containers: "/layers"}
		if err := m.observeDisks(&o, fs, time.Now()); !errors.Is(err, failed) {
			t.Errorf("%s: %v", tc.failing, err)
		}
		var known []evictionapi.Signal
		for s, seen := range o {
			if seen.Known {
				known = append(known, evictionapi.Signal(s))
			}
		}
		if !slices.Equal(known, tc.known) {
			t.Errorf("without %s the known signals are %v", tc.failing, known)
		}
	}
}

// Without the statistics of the root cgroup, the kernel's own estimate of the available memory
// counts alone, with one warning. That does not hide an error of another signal.
func TestMemoryWithoutCgroupStatistics(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no controller": {"cgroup.controllers": "cpu\n"},
		"parse error":   {"cgroup.controllers": "cpu memory\n", "memory.stat": "anon many\n"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			tree, err := cgroups.Open(root)
			if err != nil {
				t.Fatal(err)
			}
			load, diskErr := machine.Load{Memory: 256 * mi, Available: 10 * mi, AvailableKnown: true}, error(nil)
			var log bytes.Buffer
			m := New(Config{
				RootDir: root, Tree: tree, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Node:     func() (*criconfig.Node, bool) { return nil, false },
				ReadLoad: func(time.Time) (machine.Load, error) { return load, nil },
				Space:    func(string) (diskusage.Space, error) { return diskusage.Space{}, diskErr },
			})
			observe := m.observer(&fileSystems{}, newNotifier(nil))
			for range 2 {
				if seen := observe()[evictionapi.MemoryAvailable]; !seen.Known || seen.Available != 10*mi || seen.Capacity != 256*mi {
					t.Errorf("observed %+v", seen)
				}
			}
			diskErr = errors.New("no such disk")
			load.AvailableKnown = false
			if seen := observe()[evictionapi.MemoryAvailable]; seen.Known {
				t.Errorf("observed %+v without MemAvailable", seen)
			}
			for _, text := range []string{"root cgroup for memory.available", "no such disk"} {
				if strings.Count(log.String(), text) != 1 {
					t.Errorf("no single warning with %q in log:\n%s", text, log.String())
				}
			}
		})
	}
}

// BenchmarkObserve measures all signals, of which none meets its threshold.
func BenchmarkObserve(b *testing.B) {
	root := b.TempDir()
	for path, text := range map[string]string{
		"cgroup.controllers": "cpu memory\n", "memory.current": "104857700\n", "memory.stat": "inactive_file 100\n",
		"kubepods/cgroup.controllers": "cpu memory\n", "kubepods/memory.current": "52428900\n", "kubepods/memory.stat": "inactive_file 100\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	tree, err := cgroups.Open(root)
	if err != nil {
		b.Fatal(err)
	}
	m := New(Config{
		RootDir: root, Tree: tree, Log: slog.New(slog.DiscardHandler),
		Node: func() (*criconfig.Node, bool) { return &criconfig.Node{CgroupDriver: criconfig.DriverCgroupfs}, true },
	})
	observe := m.observer(&fileSystems{}, newNotifier(nil))
	b.ReportAllocs()
	for b.Loop() {
		if o := observe(); !o[evictionapi.MemoryAvailable].Known || !o[evictionapi.NodeFsAvailable].Known {
			b.Fatalf("%+v", o)
		}
	}
}
