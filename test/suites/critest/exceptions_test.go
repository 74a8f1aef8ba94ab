package critest

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/test/harness/ginkgo"
)

// TestFile reads the file that a run reads.
func TestFile(t *testing.T) {
	text, err := os.ReadFile("exceptions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	x, err := ParseExceptions(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range x {
		if len(strings.Fields(e.Reason)) < 4 {
			t.Errorf("%s: %q is no reason", e.Match, e.Reason)
		}
	}
	if _, err := ParseExceptions([]byte("[{match: a}]")); err == nil {
		t.Error("an exception without a reason is accepted")
	}
}

func TestJudge(t *testing.T) {
	x, err := ParseExceptions([]byte(`
- {match: ^pull, reason: no registry is there}
- {match: ^profile, reason: the kernel has none}
- {match: ^gone, reason: it was slow}
`))
	if err != nil {
		t.Fatal(err)
	}
	results := []ginkgo.Result{
		{Name: "exec", Outcome: ginkgo.Passed},
		{Name: "pull one", Outcome: ginkgo.Failed, Message: "not found"},
		{Name: "pull two", Outcome: ginkgo.Passed},
		{Name: "profile", Outcome: ginkgo.Skipped, Message: "disabled"},
		{Name: "attach", Outcome: ginkgo.Failed, Message: "no output"},
		{Name: "stats", Outcome: ginkgo.Skipped, Message: "not supported"},
		{Name: "logs", Outcome: ginkgo.NotRun},
	}
	want := Verdict{
		Passed:   1,
		Excepted: []Excepted{{results[1], "no registry is there"}, {results[3], "the kernel has none"}},
		Problems: []string{
			"pull two: passed, and is an exception: no registry is there",
			"attach: failed: no output",
			"stats: skipped: not supported",
			"logs: not run: ",
			`the exception "^gone" matches no case: correct or remove it`,
		},
	}
	if diff := cmp.Diff(want, x.Judge(results, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Problems = append(want.Problems[:3], want.Problems[4])
	want.NotRun = 1
	if diff := cmp.Diff(want, x.Judge(results, true)); diff != "" {
		t.Errorf("of some cases (-want +got):\n%s", diff)
	}
}
