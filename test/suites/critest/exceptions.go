package critest

import (
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/test/harness/ginkgo"
)

// Exceptions are cases that need not pass.
type Exceptions []ginkgo.Exception

// ParseExceptions reads the file exceptions.yaml.
func ParseExceptions(text []byte) (Exceptions, error) {
	var x Exceptions
	if err := yaml.UnmarshalStrict(text, &x); err != nil {
		return nil, fmt.Errorf("read the exceptions: %w", err)
	}
	return x, nil
}

// Verdict is what the exceptions make of the results of all cases.
type Verdict struct {
	Passed   int
	Excepted []Excepted // in the order of the results
	NotRun   int        // since they were not selected
	Problems []string   // that fail the run
}

// Excepted is a case that did not pass, for a listed reason.
type Excepted struct {
	ginkgo.Result
	Reason string
}

// Judge applies the exceptions to the results of all cases. A problem is a case without
// an exception that failed, skipped itself or, unless only some cases were selected, was
// not run; an exception whose case passed; and one that matches no case.
func (x Exceptions) Judge(results []ginkgo.Result, selected bool) Verdict {
	var v Verdict
	stale := map[string]bool{}
	for _, e := range x {
		stale[e.Match.String()] = true
	}
	for _, r := range results {
		reason := ""
		for _, e := range x {
			if e.Match.MatchString(r.Name) {
				reason = e.Reason
				delete(stale, e.Match.String())
			}
		}
		switch {
		case r.Outcome == ginkgo.NotRun && selected:
			v.NotRun++
		case r.Outcome == ginkgo.Passed && reason != "":
			v.Problems = append(v.Problems, fmt.Sprintf("%s: passed, and is an exception: %s", r.Name, reason))
		case r.Outcome == ginkgo.Passed:
			v.Passed++
		case reason != "":
			v.Excepted = append(v.Excepted, Excepted{r, reason})
		default:
			v.Problems = append(v.Problems, fmt.Sprintf("%s: %s: %s", r.Name, r.Outcome, r.Message))
		}
	}
	for _, match := range slices.Sorted(maps.Keys(stale)) {
		v.Problems = append(v.Problems, fmt.Sprintf("the exception %q matches no case: correct or remove it", match))
	}
	return v
}
