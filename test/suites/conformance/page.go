package conformance

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tinylet/tinylet/test/harness/ginkgo"
)

// Run is a run of the suite.
type Run struct {
	Date              time.Time
	Kubernetes, Agent string // versions
	Runtime           string // the container runtime, with its version
	Board             string
	Choice            Choice
	Results           []ginkgo.Result // of Choice.Run
}

// count returns how many results have an outcome.
func (r Run) count(o ginkgo.Outcome) int {
	n := 0
	for _, x := range r.Results {
		if x.Outcome == o {
			n++
		}
	}
	return n
}

// again is what the page says of tests that ran more than once.
const again = `
%d tests run at a time, which is more than the simulated board has processors for.
A test that fails without a listed reason is run again, alone: probes have one
second by default. With CONFORMANCE_EARLIER a run goes on with the tests that
failed, such as after an image of the suite was corrected.
`

// Page returns the run as a page of the documentation.
func (r Run) Page(rules Rules) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	ran := len(r.Results) - r.count(ginkgo.NotRun)
	rest := r.Choice.Selected - len(r.Choice.Omitted) - ran
	say("# Upstream's conformance tests\n")
	say("`make test-conformance` runs the tests of nodes and volumes of Kubernetes' own")
	say("suite (`e2e.test`) against a simulated board that is the only node of a real")
	say("control plane. `test/suites/conformance/selection.yaml` selects the tests:")
	say("`[sig-node]` and `[sig-storage]` with `[NodeConformance]` or `[Conformance]`, and")
	say("others of both that one node can run without a network beyond the cluster.")
	say("`test/suites/conformance/exceptions.yaml` lists what is not run and what may fail, each")
	say("with a reason. Any other failure fails the run. Container images are made of")
	say("static programs: upstream's agnhost and nonewprivs, and BusyBox with Bash under")
	say("the names of the others.\n")
	say("The program writes this page. This is the run of %s: Kubernetes %s, tinylet", r.Date.Format(time.DateOnly), r.Kubernetes)
	say("%s, %s; %s.\n", r.Agent, r.Runtime, r.Board)
	say("%d of the %d selected tests ran in it.\n", ran, r.Choice.Selected)
	say("| | tests |\n|---|---|")
	say("| selected | %d |", r.Choice.Selected)
	say("| omitted, with a reason | %d |", len(r.Choice.Omitted))
	say("| not run in this run | %d |", rest)
	say("| ran | %d |", ran)
	say("| passed | %d |", r.count(ginkgo.Passed))
	say("| failed | %d |", r.count(ginkgo.Failed))
	say("| skipped themselves | %d |\n", r.count(ginkgo.Skipped))
	say("## By subject\n")
	say("| subject | passed | failed | skipped themselves | not run |\n|---|---|---|---|---|")
	subjects := map[string]map[ginkgo.Outcome]int{}
	for _, x := range r.Results {
		s := subject(x.Name)
		if subjects[s] == nil {
			subjects[s] = map[ginkgo.Outcome]int{}
		}
		subjects[s][x.Outcome]++
	}
	for _, s := range slices.Sorted(maps.Keys(subjects)) {
		n := subjects[s]
		if n[ginkgo.Passed]+n[ginkgo.Failed]+n[ginkgo.Skipped] == 0 {
			continue // the count above has them
		}
		say("| %s | %d | %d | %d | %d |", cell(s), n[ginkgo.Passed], n[ginkgo.Failed], n[ginkgo.Skipped], n[ginkgo.NotRun])
	}
	section := func(title, about, head string, in func(ginkgo.Result) bool, text func(ginkgo.Result) string) {
		say("\n## %s\n%s", title, about)
		if !slices.ContainsFunc(r.Results, in) {
			say("None.")
			return
		}
		say("| test | %s |\n|---|---|", head)
		for _, x := range r.Results {
			if in(x) {
				say("| %s | %s |", cell(x.Name), cell(text(x)))
			}
		}
	}
	of := func(o ginkgo.Outcome) func(ginkgo.Result) bool {
		return func(x ginkgo.Result) bool { return x.Outcome == o }
	}
	section("Failed", "", "reason", of(ginkgo.Failed), func(x ginkgo.Result) string {
		if reason := rules.MayFail(x.Name); reason != "" {
			return reason
		}
		return "not listed: " + x.Message
	})
	section("Failed first, passed again", fmt.Sprintf(again, processes), "the first failure",
		func(x ginkgo.Result) bool { return x.Outcome == ginkgo.Passed && x.Before != "" }, func(x ginkgo.Result) string { return x.Before })
	section("Skipped themselves", "", "what the test says", of(ginkgo.Skipped), func(x ginkgo.Result) string { return x.Message })
	say("\n## Omitted\n")
	if len(r.Choice.Omitted) == 0 {
		say("None.")
		return b.String()
	}
	say("| test | reason |\n|---|---|")
	for _, name := range slices.Sorted(maps.Keys(r.Choice.Omitted)) {
		say("| %s | %s |", cell(name), cell(r.Choice.Omitted[name]))
	}
	return b.String()
}

// label is a tag in the name of a test that says nothing of its subject.
var label = regexp.MustCompile(`\[(NodeConformance|Conformance|Serial|Slow|LinuxOnly|Beta|Disruptive|Feature[^\]]*)\] ?`)

// subject returns the first words of a test's name: its group, and what of it
// is tested.
func subject(name string) string {
	const most = 4 // words
	words := strings.Fields(label.ReplaceAllString(name, ""))
	words = words[:min(most, len(words))]
	for i, w := range words {
		if i > 1 && (strings.HasPrefix(w, "[") || strings.HasPrefix(w, "(") || verbs[strings.ToLower(w)]) {
			return strings.Join(words[:i], " ")
		}
	}
	return strings.Join(words, " ")
}

// verbs begin what a test says of its subject.
var verbs = map[string]bool{
	"should": true, "when": true, "will": true, "with": true, "can": true, "if": true, "evicts": true, "only": true, "a": true,
	"removing": true, "doesn't": true, "eventually": true, "pods": true, "verify": true, "blackbox": true, "allow": true, "runs": true,
}

// cell returns text as it stands in a table of Markdown.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`).Replace(text)
}
