package ginkgo

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
	{Name: "node a", Outcome: Passed, Took: 1500 * time.Millisecond},
	{Name: "node b", Outcome: Failed, Message: "it is not so", Took: 2 * time.Second},
	{Name: "node c", Outcome: Skipped, Message: "needs two nodes"},
	{Name: "node d", Outcome: NotRun},
	{Name: "node e", Outcome: Failed, Message: "no memory", Took: time.Second},
	{Name: "node g", Outcome: NotRun, Took: 9 * time.Second},
	{Name: "node h", Outcome: Failed, Message: "[TIMEDOUT] A spec timeout occurred", Took: 9 * time.Second},
	{Name: "node i", Outcome: NotRun, Took: 9 * time.Second},
	{Name: "another", Outcome: NotRun},
}

func TestReadJUnit(t *testing.T) {
	got, err := ReadJUnit(strings.NewReader(junit))
	if diff := cmp.Diff(results, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	broken := strings.Replace(junit, `status="passed" time="0.5">`, `status="failed" time="0.5"><failure message="no node is ready"></failure>`, 1)
	if _, err := ReadJUnit(strings.NewReader(broken)); err == nil || !strings.Contains(err.Error(), "no node is ready") {
		t.Errorf("a suite that did not begin: %v", err)
	}
	if _, err := ReadJUnit(strings.NewReader(junit[:400])); err == nil {
		t.Error("half a report is accepted")
	}
}

func TestNamed(t *testing.T) {
	want := []Result{results[1], {Name: "node f", Outcome: NotRun}, results[0]}
	if diff := cmp.Diff(want, Named(results, []string{"node b", "node f", "node a"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestShort(t *testing.T) {
	got := message{Text: strings.Repeat("ä\n", 1000)}.short()
	if n := len([]rune(got)); n != 301 || strings.Contains(got, "\n") {
		t.Errorf("%d characters: %q", n, got)
	}
}
