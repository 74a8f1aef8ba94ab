package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const junit = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="7" failures="1">
<testsuite name="Kubernetes e2e suite" tests="7">
 <testcase name="[SynchronizedBeforeSuite]" status="passed" time="0.5"></testcase>
 <testcase name="[It] node a" status="passed" time="1.5"><system-err>much</system-err></testcase>
 <testcase name="[It] node b" status="failed" time="2"><failure type="failed">it is
   not so</failure></testcase>
 <testcase name="[It] node c" status="skipped" time="0"><skipped message="skipped - needs two nodes"></skipped></testcase>
 <testcase name="[It] node d" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
 <testcase name="[It] node e" status="panicked" time="1"><error message="" type="panicked">no memory</error></testcase>
 <testcase name="[It] node g" status="timedout" time="9"><failure type="timedout">[TIMEDOUT] A suite timeout occurred</failure></testcase>
 <testcase name="[It] node h" status="timedout" time="9"><failure type="timedout">[TIMEDOUT] A spec timeout occurred</failure></testcase>
 <testcase name="[It] node i" status="interrupted" time="9"><error type="interrupted">Interrupted by User</error></testcase>
 <testcase name="[It] another" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
</testsuite>
</testsuites>`

var results = []Result{
	{"node a", Passed, "", 1500 * time.Millisecond},
	{"node b", Failed, "it is not so", 2 * time.Second},
	{"node c", Skipped, "needs two nodes", 0},
	{"node d", NotRun, "", 0},
	{"node e", Failed, "no memory", time.Second},
	{"node f", NotRun, "", 0},
	{"node g", NotRun, "", 9 * time.Second},
	{"node h", Failed, "[TIMEDOUT] A spec timeout occurred", 9 * time.Second},
	{"node i", NotRun, "", 9 * time.Second},
}

var ran = []string{"node a", "node b", "node c", "node d", "node e", "node f", "node g", "node h", "node i"}

func TestReadJUnit(t *testing.T) {
	got, err := ReadJUnit(strings.NewReader(junit), ran)
	if diff := cmp.Diff(results, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	broken := strings.Replace(junit, `status="passed" time="0.5">`, `status="failed" time="0.5"><failure message="no node is ready"></failure>`, 1)
	if _, err := ReadJUnit(strings.NewReader(broken), ran); err == nil || !strings.Contains(err.Error(), "no node is ready") {
		t.Errorf("a suite that did not begin: %v", err)
	}
	if _, err := ReadJUnit(strings.NewReader(junit[:400]), ran); err == nil {
		t.Error("half a report is accepted")
	}
}

func TestShort(t *testing.T) {
	got := message{Text: strings.Repeat("ä\n", 1000)}.short()
	if n := len([]rune(got)); n != 301 || strings.Contains(got, "\n") {
		t.Errorf("%d characters: %q", n, got)
	}
}

func TestUnexpected(t *testing.T) {
	r, err := ParseRules([]byte("select: [node]"), []byte("fail: [{match: node b, reason: the board is slow}]"))
	if err != nil {
		t.Fatal(err)
	}
	want := results[3:]
	if diff := cmp.Diff(want, r.Unexpected(results, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Result{results[4], results[7]}, r.Unexpected(results, true)); diff != "" {
		t.Errorf("with a limit (-want +got):\n%s", diff)
	}
}
