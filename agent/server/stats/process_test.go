package stats

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
)

const sampleStat = "418 (tiny) let 1 2) S 1 418 418 0 -1 4194560 9000 0 12 0 150 50 0 0 20 0 9 0 12345 1300000000 7001 18446744073709551615 1 1 0\n"

func TestParseStat(t *testing.T) {
	boot := time.Unix(1700000000, 0)
	want := processStats{cpu: 2 * time.Second, started: boot.Add(123450 * time.Millisecond), virtual: 1300000000, resident: 7001 * 4096}
	if got, err := parseStat([]byte(sampleStat), boot, 4096); err != nil || got != want {
		t.Errorf("figures %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1 (x", "1 (x) S", strings.Replace(sampleStat, "12345", "x", 1), strings.Replace(sampleStat, " 7001", " -7001", 1)} {
		if _, err := parseStat([]byte(bad), boot, 4096); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(sampleStat))
	f.Add([]byte("1 (x) S 18446744073709551615"))
	f.Fuzz(func(t *testing.T, text []byte) {
		figures, err := parseStat(text, time.Unix(0, 0), 4096)
		if err == nil && figures.cpu < 0 {
			t.Errorf("figures %+v", figures)
		}
	})
}

func TestProcess(t *testing.T) {
	proc := t.TempDir()
	files := map[string]string{"self/stat": sampleStat, "stat": "cpu 1\n" + "intr " + strings.Repeat("0 ", 9000) + "\nbtime 1700000000\n", "self/fd/0": "", "self/fd/1": "", "self/fd/7": ""}
	for name, text := range files {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := metricstest.Render(t, metrics.NewStream, process{proc: proc}.writeMetrics)
	metricstest.WantLines(t, text, "process_cpu_seconds_total 2\n", "process_virtual_memory_bytes 1300000000\n", "process_open_fds 2\n",
		"process_start_time_seconds 1.70000012345e+09\n", "process_resident_memory_bytes ", "process_max_fds ", "go_goroutines ", "go_info{version=\"go1")
	for name := range files {
		if name == "self/fd/0" || name == "self/fd/1" || name == "self/fd/7" {
			continue
		}
		t.Run("without "+name, func(t *testing.T) {
			if err := os.Truncate(filepath.Join(proc, name), 0); err != nil {
				t.Fatal(err)
			}
			text := metricstest.Render(t, metrics.NewStream, process{proc: proc}.writeMetrics)
			if metricstest.WantLines(t, text, "go_goroutines "); strings.Contains(text, "process_") {
				t.Errorf("told without %s:\n%s", name, text)
			}
			if err := os.WriteFile(filepath.Join(proc, name), []byte(files[name]), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The stats of the test process are plausible.
func TestOwnProcess(t *testing.T) {
	f, err := process{proc: "/proc"}.read()
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(f.started); age < 0 || age > 24*time.Hour {
		t.Errorf("started %v ago", age)
	}
	if f.resident < 1<<20 || f.virtual < f.resident || f.open < 3 || f.limit < f.open {
		t.Errorf("figures %+v", f)
	}
}

func TestBuild(t *testing.T) {
	metricstest.WantLines(t, metricstest.Render(t, metrics.NewStream, WriteBuildInfo), "kubernetes_build_info{build_date=\"\",compiler=\"gc\",git_commit=\"\",git_tree_state=\"\",git_version=\"v1.36.0+tinylet.")
}
