package conformance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/test/harness/ginkgo"
)

var results = []ginkgo.Result{
	{Name: "node a", Outcome: ginkgo.Passed, Took: 1500 * time.Millisecond},
	{Name: "node b", Outcome: ginkgo.Failed, Message: "it is not so", Took: 2 * time.Second},
	{Name: "node c", Outcome: ginkgo.Skipped, Message: "needs two nodes"},
	{Name: "node d", Outcome: ginkgo.NotRun},
	{Name: "node e", Outcome: ginkgo.Failed, Message: "no memory", Took: time.Second},
	{Name: "node f", Outcome: ginkgo.NotRun},
	{Name: "node g", Outcome: ginkgo.NotRun, Took: 9 * time.Second},
	{Name: "node h", Outcome: ginkgo.Failed, Message: "[TIMEDOUT] A spec timeout occurred", Took: 9 * time.Second},
	{Name: "node i", Outcome: ginkgo.NotRun, Took: 9 * time.Second},
}

var ran = []string{"node a", "node b", "node c", "node d", "node e", "node f", "node g", "node h", "node i"}

func TestUnexpected(t *testing.T) {
	r, err := ParseRules([]byte("select: [node]"), []byte("fail: [{match: node b, reason: the board is slow}]"))
	if err != nil {
		t.Fatal(err)
	}
	want := results[3:]
	if diff := cmp.Diff(want, r.Unexpected(results, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]ginkgo.Result{results[4], results[7]}, r.Unexpected(results, true)); diff != "" {
		t.Errorf("with a limit (-want +got):\n%s", diff)
	}
}

func TestAgainAndMerge(t *testing.T) {
	r, err := ParseRules([]byte("select: [node]"), []byte("fail: [{match: node b, reason: the board is slow}]"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"node d", "node e", "node f", "node g", "node h", "node i"}, r.Again(results)); diff != "" {
		t.Errorf("run again (-want +got):\n%s", diff)
	}
	got := Merge(results, []ginkgo.Result{
		{Name: "node e", Outcome: ginkgo.Passed, Took: time.Minute}, {Name: "node h", Outcome: ginkgo.Failed, Message: "again"},
		{Name: "node d", Outcome: ginkgo.Passed}, {Name: "node g", Outcome: ginkgo.NotRun},
	})
	want := slices.Clone(results)
	want[4] = ginkgo.Result{Name: "node e", Outcome: ginkgo.Passed, Took: time.Minute, Before: "no memory"}
	want[7] = ginkgo.Result{Name: "node h", Outcome: ginkgo.Failed, Message: "again", Before: "[TIMEDOUT] A spec timeout occurred"}
	want[3] = ginkgo.Result{Name: "node d", Outcome: ginkgo.Passed}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if results[4].Outcome != ginkgo.Failed {
		t.Error("Merge changes its argument")
	}
	if page := (Run{Results: got}).Page(r); !strings.Contains(page, "failed, such as after an image of the suite was corrected.\n\n| test | the first failure |\n|---|---|\n| node e | no memory |\n") {
		t.Errorf("the page lacks the test that passed alone:\n%s", page)
	}
}
