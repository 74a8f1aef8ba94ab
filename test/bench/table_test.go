package bench

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// line is the table's line of a row.
func line(t *testing.T, table, what string) string {
	t.Helper()
	for l := range strings.Lines(table) {
		if strings.HasPrefix(l, "| "+what+" |") {
			return strings.TrimSpace(l)
		}
	}
	t.Fatalf("no line %q in\n%s", what, table)
	return ""
}

func TestTable(t *testing.T) {
	r := results{
		kubelet:  measurements{binarySize: 78.84, oneStart: 4.2, idleAvailable: 100, idleCPU("agent"): 146, tenStart: 0},
		tinylet:  measurements{binarySize: 24.5, oneStart: 2.1004, idleAvailable: 120, idleCPU("agent"): 3.2, tenStart: 5},
		defaults: measurements{oneStart: 5},
		runtime:  measurements{oneStart: 1.5},
	}
	table := r.table()
	for what, want := range map[string]string{
		"agent's binary, stripped":                "| agent's binary, stripped | 78.8 MB | 24.5 MB | 31 % | ≤ 30 MB | – | – |",
		"one pod, API create to Running":          "| one pod, API create to Running | 4.20 s | **2.10 s** | 50 % | ≤ 2.1 s | 5.00 s | 1.50 s |",
		"MemAvailable, no pods":                   "| MemAvailable, no pods | 100 MB | 120 MB | 120 % |  | – | – |",
		"idle CPU, no pods: agent":                "| idle CPU, no pods: agent | 146.0 ms/s | 3.2 ms/s | 2.2 % | ≤ 7 ms/s | – | – |",
		"10 pods at once, create to Running: p50": "| 10 pods at once, create to Running: p50 | 0.0 s | 5.0 s | – | ≤ 9 s | – | – |",
		"agent's RSS, no pods":                    "| agent's RSS, no pods | – | – | – | ≤ 30 MB | – | – |",
	} {
		if got := line(t, table, what); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for l := range strings.Lines(table) {
		if n := strings.Count(l, "|"); n != 8 {
			t.Errorf("%d bars in %s", n, l)
		}
	}
	missed := r.missed()
	for _, want := range []string{"one pod, API create to Running: 2.10 s, ≤ 2.1 s", "agent's RSS, no pods: not measured"} {
		if !slices.Contains(missed, want) {
			t.Errorf("missed budgets %q, want %q among them", missed, want)
		}
	}
	if slices.ContainsFunc(missed, func(s string) bool { return strings.HasPrefix(s, "agent's binary") }) {
		t.Errorf("missed budgets %q", missed)
	}
}

// TestRowsAreOfTheirOwn finds a row that was copied and not changed.
func TestRowsAreOfTheirOwn(t *testing.T) {
	seen := make(map[string]bool)
	for _, w := range rows {
		if seen[w.what] || seen[string(w.value)] || w.unit == "" {
			t.Errorf("row %+v", w)
		}
		seen[w.what], seen[string(w.value)] = true, true
	}
}

func TestReport(t *testing.T) {
	c := conditions{
		date: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC), kernel: "6.12", containerd: "containerd 2", runtime: "crun 1",
		kubelet: "v1", tinylet: "v2", settle: time.Minute, settlePods: time.Second, idleWindow: 5 * time.Minute, shortWindow: 2 * time.Minute, rounds: 5,
	}
	quiet := report(c, results{})
	for _, want := range []string{"2031-02-03", "Linux 6.12.", "containerd 2 with crun 1", "kubelet v1", "tinylet v2", machine, "| what | kubelet |"} {
		if !strings.Contains(quiet, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if strings.Contains(quiet, "%!") || strings.Contains(quiet, "do not use") {
		t.Errorf("the report of a quiet machine:\n%s", quiet)
	}
	c.load = 2
	if busy := report(c, results{}); !strings.Contains(busy, "2.0 of its processors") {
		t.Error("the report hides that the machine was busy")
	}
}
