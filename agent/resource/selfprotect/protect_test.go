package selfprotect

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/cgroups"
)

// board is a cgroup hierarchy with Group in it, and a procfs with one process.
func board(t *testing.T, controllers string) (c *Config, file func(parts ...string) string) {
	t.Helper()
	root := t.TempDir()
	file = func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	write := func(content string, parts ...string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file(parts...)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file(parts...), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"cgroup", "cgroup" + Cgroup} {
		write(controllers, dir, "cgroup.controllers")
		write(controllers, dir, "cgroup.subtree_control")
		for _, name := range []string{"cgroup.procs", "cpu.weight", "memory.min"} {
			write("", dir, name)
		}
	}
	write("0::/\n", "proc", "7", "cgroup")
	write("0\n", "proc", "7", "oom_score_adj")
	tree, err := cgroups.Open(file("cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	return &Config{Tree: tree, Proc: file("proc"), Memory: 256 << 20, OOMScoreAdj: -999}, file
}

func TestProcess(t *testing.T) {
	for _, tc := range []struct {
		name, controllers, cgroup, score string
		memory                           uint64
		procs, min, wantScore            string
	}{
		{"a small board", "cpu memory", "0::/\n", "0\n", 256 << 20, "7", "67108864", "-999"},
		{"a large board", "cpu memory", "0::/\n", "0\n", 1 << 30, "7", "100663296", "-999"},
		{"a group of its own", "cpu memory", "0::/system.slice/tinylet.service\n", "0\n", 256 << 20, "", "", "-999"},
		{"beside cgroup v1", "cpu memory", "1:name=systemd:/\n0::/\n", "0\n", 256 << 20, "", "", "-999"},
		{"spared already", "cpu memory", "0::/\n", "-1000\n", 256 << 20, "7", "67108864", "-1000"},
		{"no memory controller", "cpu", "0::/\n", "0\n", 256 << 20, "", "", "-999"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, file := board(t, tc.controllers)
			c.Memory = tc.memory
			for name, content := range map[string]string{"cgroup": tc.cgroup, "oom_score_adj": tc.score} {
				if err := os.WriteFile(file("proc", "7", name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Protect(7); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{
				file("cgroup", Cgroup, "cgroup.procs"): tc.procs, file("cgroup", Cgroup, "memory.min"): tc.min,
				file("proc", "7", "oom_score_adj"): tc.wantScore,
			} {
				got, err := os.ReadFile(name)
				if err != nil || strings.TrimSpace(string(got)) != want {
					t.Errorf("%s has %q (%v), want %q", name, got, err, want)
				}
			}
		})
	}
}

func TestProcessThatEnded(t *testing.T) {
	c, _ := board(t, "cpu memory")
	if err := c.Protect(8); err != nil {
		t.Error(err)
	}
}

func TestProcessFails(t *testing.T) {
	c, file := board(t, "cpu memory")
	if err := os.Remove(file("proc", "7", "oom_score_adj")); err != nil {
		t.Fatal(err)
	}
	if err := c.Protect(7); err == nil || !strings.Contains(err.Error(), "process 7") {
		t.Errorf("no score: %v", err)
	}
}

func TestListener(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if _, err := ListenerPID(t.Context(), socket); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if pid, err := ListenerPID(t.Context(), socket); err != nil || pid != os.Getpid() {
		t.Errorf("process %d listens (%v), want %s", pid, err, strconv.Itoa(os.Getpid()))
	}
}
