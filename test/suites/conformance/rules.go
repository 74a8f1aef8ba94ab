package conformance

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/test/harness/ginkgo"
)

// Rules say which tests of upstream's suite are run, and which of them may
// fail.
type Rules struct {
	Select []*regexp.Regexp   // of the names of tests that are run
	Omit   []ginkgo.Exception // of those, the ones that are not run
	Fail   []ginkgo.Exception // of the others, the ones that may fail
}

// ParseRules reads the files selection.yaml and exceptions.yaml. It refuses
// unknown keys, empty files, exceptions without a reason and expressions that
// do not compile.
func ParseRules(selection, exceptions []byte) (Rules, error) {
	var s struct {
		Select []string `json:"select"`
	}
	if err := yaml.UnmarshalStrict(selection, &s); err != nil {
		return Rules{}, fmt.Errorf("read the selection: %w", err)
	}
	if len(s.Select) == 0 {
		return Rules{}, errors.New("read the selection: it selects nothing")
	}
	var e struct {
		Omit []ginkgo.Exception `json:"omit"`
		Fail []ginkgo.Exception `json:"fail"`
	}
	if err := yaml.UnmarshalStrict(exceptions, &e); err != nil {
		return Rules{}, fmt.Errorf("read the exceptions: %w", err)
	}
	r := Rules{Omit: e.Omit, Fail: e.Fail}
	for _, expression := range s.Select {
		re, err := ginkgo.Compile(expression)
		if err != nil {
			return Rules{}, fmt.Errorf("read the selection: %w", err)
		}
		r.Select = append(r.Select, re)
	}
	return r, nil
}

// processes is how many tests run at a time. Several of them only wait, for up to
// five minutes.
const processes = 6

// Again returns the names of the tests that are to be run again, alone: those that
// failed without a listed reason, and those that were not run.
func (r Rules) Again(results []ginkgo.Result) []string {
	var names []string
	for _, x := range r.Unexpected(results, false) {
		names = append(names, x.Name)
	}
	return names
}

// Choice is what Rules make of the tests that there are.
type Choice struct {
	Selected int               // tests that match the selection, the omitted ones included
	Omitted  map[string]string // names of tests, with the reason
	Run      []string          // names of tests that are run, in order
}

// Choose applies the rules to the names of all tests. With a focus, which is a
// regular expression, only tests that match it are run. An expression of the
// rules that matches no test is an error: the test has another name now, or is
// gone.
func (r Rules) Choose(names []string, focus string) (Choice, error) {
	focused, err := regexp.Compile(focus)
	if err != nil {
		return Choice{}, fmt.Errorf("read the focus: %w", err)
	}
	c := Choice{Omitted: map[string]string{}}
	used := map[*regexp.Regexp]bool{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		selected := false
		for _, re := range r.Select {
			if re.MatchString(name) {
				selected, used[re] = true, true
			}
		}
		if !selected {
			continue
		}
		c.Selected++
		omitted, all := reason(r.Omit, name)
		for _, re := range all {
			used[re] = true
		}
		if omitted != "" {
			c.Omitted[name] = omitted
			continue
		}
		_, all = reason(r.Fail, name)
		for _, re := range all {
			used[re] = true
		}
		if focused.MatchString(name) {
			c.Run = append(c.Run, name)
		}
	}
	var stale []error
	for _, re := range r.all() {
		if !used[re] {
			stale = append(stale, fmt.Errorf("the rule %q matches no test: correct or remove it", re))
		}
	}
	return c, errors.Join(stale...)
}

func (r Rules) all() []*regexp.Regexp {
	list := slices.Clone(r.Select)
	for _, x := range slices.Concat(r.Omit, r.Fail) {
		list = append(list, x.Match)
	}
	return list
}

// MayFail returns the reason for which a test may fail, or nothing.
func (r Rules) MayFail(name string) string {
	first, _ := reason(r.Fail, name)
	return first
}

// reason returns the first reason that a list has for a test, and all
// expressions that match it.
func reason(list []ginkgo.Exception, name string) (first string, matching []*regexp.Regexp) {
	for _, x := range list {
		if !x.Match.MatchString(name) {
			continue
		}
		if first == "" {
			first = x.Reason
		}
		matching = append(matching, x.Match)
	}
	return first, matching
}

// ParseList reads the names of tests from what e2e.test prints with
// --list-tests: lines of a source position and a name.
func ParseList(out string) ([]string, error) {
	names := map[string]bool{}
	for line := range strings.Lines(out) {
		position, name, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || strings.ContainsRune(position, ' ') {
			continue // the heading
		}
		names[name] = true
	}
	if len(names) == 0 {
		return nil, errors.New("read the list of tests: it has none")
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// Focus returns an expression that matches exactly the tests of these names,
// in the form that Ginkgo matches: the suite's name comes first.
func Focus(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^" + regexp.QuoteMeta(suite) + " (" + strings.Join(quoted, "|") + ")$"
}

// suite is the name that upstream gives its suite.
const suite = "Kubernetes e2e suite"
