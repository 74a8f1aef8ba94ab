package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/ginkgo"
)

func TestPage(t *testing.T) {
	r, err := ParseRules([]byte("select: [node]"), []byte("fail: [{match: node b, reason: the board is slow}]"))
	if err != nil {
		t.Fatal(err)
	}
	run := Run{
		Date: time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC), Kubernetes: "v1.36.3", Agent: "v1.36.0+tinylet.0", Runtime: "containerd v2.4.2", Board: "a board",
		Choice:  Choice{Selected: 12, Omitted: map[string]string{"node pull|x": "no registry is there"}, Run: ran},
		Results: results,
	}
	page := run.Page(r)
	for _, line := range []string{
		"5 of the 12 selected tests ran in it.",
		"| selected | 12 |", "| omitted, with a reason | 1 |", "| not run in this run | 6 |", "| ran | 5 |",
		"| passed | 1 |", "| failed | 3 |", "| skipped themselves | 1 |",
		"| node b | the board is slow |", "| node e | not listed: no memory |",
		"| node c | needs two nodes |", `| node pull\|x | no registry is there |`,
	} {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("the page lacks %q:\n%s", line, page)
		}
	}
	run.Results = append(run.Results, ginkgo.Result{Name: "volume x", Outcome: ginkgo.NotRun})
	if strings.Contains(run.Page(r), "| volume x |") {
		t.Error("the page lists a subject of which nothing ran")
	}
	run.Results = results
	if again := run.Page(r); again != page {
		t.Error("the page of the same run differs")
	}
}

func TestSubject(t *testing.T) {
	for name, want := range map[string]string{
		"[sig-node] Pods should be updated [NodeConformance]":                                         "[sig-node] Pods",
		"[sig-storage] EmptyDir volumes should support (root,0644)":                                   "[sig-storage] EmptyDir volumes",
		"[sig-node] [NodeConformance] [FeatureGate:SidecarContainers] Probing restartable init":       "[sig-node] Probing restartable init",
		"[sig-storage] HostPathType File [Slow] Should fail on mounting":                              "[sig-storage] HostPathType File",
		"[sig-node] Security Context When creating a pod with readOnlyRootFilesystem should run":      "[sig-node] Security Context",
		"[sig-node] Container Lifecycle Hook when create a pod with lifecycle hook should run [Slow]": "[sig-node] Container Lifecycle Hook",
	} {
		if got := subject(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
