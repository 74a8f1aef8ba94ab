package podcgroup

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/cgroups"
)

func TestEnforceReserved(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"", "daemons"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{
			"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "cpu memory pids", "memory.current": "9000000\n",
			"cpu.weight": "", "memory.max": "", "memory.min": "", "pids.max": "",
		} {
			if err := os.WriteFile(filepath.Join(root, dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for _, tc := range []struct {
		name, group, memory string
		enforce             []string
		event               string
		want                map[string]string // since the case before, by the file
	}{
		{"nothing", "/daemons", "16Mi", []string{"pods"}, "", map[string]string{"cpu.weight": ""}},
		{"weight alone", "/daemons", "16Mi", []string{"system-reserved-compressible"}, reasonEnforced, map[string]string{"cpu.weight": "20", "memory.max": ""}},
		{"all", "/daemons", "16Mi", []string{"system-reserved"}, reasonEnforced, map[string]string{"memory.max": "16777216", "memory.min": "16777216", "pids.max": "50"}},
		{"less than is used", "/daemons", "1Mi", []string{"system-reserved"}, reasonNotEnforced, map[string]string{"memory.max": "16777216"}},
		{"no such group", "/other", "16Mi", []string{"system-reserved"}, reasonNotEnforced, nil},
	} {
		cfg := &config.Config{}
		cfg.Kubelet.EnforceNodeAllocatable = tc.enforce
		cfg.Kubelet.SystemReservedCgroup = tc.group
		cfg.Kubelet.SystemReserved = map[string]string{"cpu": "500m", "memory": tc.memory, "pid": "50"}
		events := event.NewRecorder(log)
		EnforceReserved(cfg, tree, &criconfig.Node{MemoryQoS: true}, events, log)
		var reasons []string
		for _, e := range events.Recent() {
			reasons = append(reasons, e.Reason)
		}
		if got := strings.Join(reasons, " "); got != tc.event {
			t.Errorf("%s: events %q, want %q", tc.name, got, tc.event)
		}
		for file, want := range tc.want {
			got, err := os.ReadFile(filepath.Join(root, "daemons", file))
			if err != nil || string(got) != want {
				t.Errorf("%s: %s is %q (%v), want %q", tc.name, file, got, err, want)
			}
		}
	}
}
