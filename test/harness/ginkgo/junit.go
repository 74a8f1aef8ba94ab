// Package ginkgo reads the reports that suites of upstream's tests write, and the lists
// of exceptions to them. Ginkgo is what runs these suites.
package ginkgo

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Outcome is how a test ended.
type Outcome string

// The ways in which a test ends. A test that was not begun, or was broken off
// with the suite, has NotRun.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
	NotRun  Outcome = "not run"
)

// Result is what came of one test.
type Result struct {
	Name    string
	Outcome Outcome
	Message string // of a failure or of a test that skipped itself
	Took    time.Duration
	// Before is the message of the failure beside other tests, after which this is
	// the result of the test alone; "" for a test that ran once.
	Before string
}

// testcase is what is read of a JUnit report.
type testcase struct {
	Name    string   `xml:"name,attr"`
	Status  string   `xml:"status,attr"`
	Time    float64  `xml:"time,attr"`
	Failure *message `xml:"failure"`
	Error   *message `xml:"error"`
	Skipped *message `xml:"skipped"`
}

type message struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// notBegun is the message that Ginkgo gives a test which it did not begin.
const notBegun = "skipped"

// ReadJUnit returns the results of all tests from a JUnit report that Ginkgo wrote.
// The error names whatever of the suite itself failed, such as its start.
func ReadJUnit(r io.Reader) ([]Result, error) {
	var report struct {
		Suites []struct {
			Cases []testcase `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.NewDecoder(r).Decode(&report); err != nil {
		return nil, fmt.Errorf("read the JUnit report: %w", err)
	}
	var results []Result
	var errs []error
	for _, s := range report.Suites {
		for _, c := range s.Cases {
			name, isTest := strings.CutPrefix(c.Name, "[It] ")
			if isTest {
				results = append(results, c.result(name))
			} else if c.problem() != nil {
				errs = append(errs, fmt.Errorf("%s: %s", c.Name, c.problem().short()))
			}
		}
	}
	return results, errors.Join(errs...)
}

// Named returns the results of the tests of these names, in their order. A test
// without a result was not run.
func Named(results []Result, names []string) []Result {
	all := map[string]Result{}
	for _, x := range results {
		all[x.Name] = x
	}
	named := make([]Result, 0, len(names))
	for _, name := range names {
		x, ok := all[name]
		if !ok {
			x = Result{Name: name, Outcome: NotRun}
		}
		named = append(named, x)
	}
	return named
}

func (c testcase) problem() *message {
	if c.Failure != nil {
		return c.Failure
	}
	return c.Error
}

// brokenOff reports whether the end of the suite's time, or of Ginkgo itself,
// ended the test. A test whose own time was over has failed.
func (c testcase) brokenOff() bool {
	switch c.Status {
	case "interrupted", "aborted":
		return true
	case "timedout":
		return c.Failure != nil && strings.Contains(c.Failure.Message+c.Failure.Text, "A suite timeout occurred")
	}
	return false
}

func (c testcase) result(name string) Result {
	r := Result{Name: name, Outcome: Passed, Took: time.Duration(c.Time * float64(time.Second))}
	switch {
	case c.brokenOff():
		r.Outcome = NotRun
	case c.problem() != nil:
		r.Outcome, r.Message = Failed, c.problem().short()
	case c.Skipped != nil && c.Skipped.Message == notBegun:
		r.Outcome = NotRun
	case c.Skipped != nil:
		r.Outcome, r.Message = Skipped, strings.TrimPrefix(c.Skipped.short(), "skipped - ")
	case c.Status != "passed":
		r.Outcome, r.Message = Failed, c.Status
	}
	return r
}

// short returns the message in one line of bounded length.
func (m message) short() string {
	const most = 300
	text := m.Message
	if text == "" {
		text = m.Text
	}
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}
