package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// most is the maximum number of a test's lines that are printed again: its first
// ones hold the first failure, its last ones the end. mostBetween is the maximum of
// the last lines between them that the test itself logged: after its failure come
// the logs of whatever it had running, with hundreds of lines.
const (
	most        = 60
	mostBetween = 20
)

// begins is how a line begins that a test has logged (testing.T.Log).
var begins = regexp.MustCompile(`^ *\S+_test\.go:\d+: `)

// event is a line of `go test -json` (go doc test2json; build-output and
// build-fail are those of go help buildjson).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// said is what a test, a package or a build has printed.
type said struct {
	name        string
	lines       []string
	failed      bool
	failedBelow bool // a test of its own is the one to read
}

// follow prints the events' output to out as it comes, and returns what those
// that failed have said.
func follow(in io.Reader, out io.Writer, prefix string) (string, error) {
	all := make(map[string]*said)
	var order []*said
	of := func(e event) *said {
		name := e.Package + e.ImportPath
		if e.Test != "" {
			name = e.Package + " " + e.Test
		}
		s := all[name]
		if s == nil {
			s = &said{name: name}
			all[name] = s
			order = append(order, s)
		}
		return s
	}
	lines := bufio.NewReader(in)
	start := true // of a line: a long one comes in several events
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
				e = event{Action: "output", Output: line} // of go itself
			}
			switch e.Action {
			case "output", "build-output":
				printed := e.Output
				if start {
					printed = prefix + printed
				}
				if _, err := io.WriteString(out, printed); err != nil {
					return "", fmt.Errorf("print: %w", err)
				}
				start = strings.HasSuffix(e.Output, "\n")
				of(e).add(e.Output)
			case "fail", "build-fail":
				of(e).failed = true
				for name := e.Test; name != ""; {
					above := max(strings.LastIndexByte(name, '/'), 0)
					name = name[:above]
					of(event{Package: e.Package, Test: name}).failedBelow = true
				}
			}
		}
		if err == io.EOF {
			return summary(order, prefix), nil
		}
		if err != nil {
			return "", fmt.Errorf("read: %w", err)
		}
	}
}

// add adds a line, or what is left of the last one.
func (s *said) add(text string) {
	if n := len(s.lines); n > 0 && !strings.HasSuffix(s.lines[n-1], "\n") {
		s.lines[n-1] += text
		return
	}
	s.lines = append(s.lines, text)
}

// summary is the output of the failed tests, without what failed only for
// one of its own parts. If that is much, their names and reasons stand once
// more at its end, where also those see them who see no more.
func summary(all []*said, prefix string) string {
	var b strings.Builder
	var names []string
	for _, s := range all {
		lines := s.own()
		if !s.failed || s.failedBelow && len(lines) == 0 {
			continue
		}
		names = append(names, s.name+s.reason())
		fmt.Fprintf(&b, "%sFAILED: %s\n", prefix, s.name)
		left := max(len(lines)-most, 0)
		for _, line := range lines[:(len(lines)-left)/2] {
			b.WriteString(prefix + line)
		}
		if left > 0 {
			middle := lines[(len(lines)-left)/2:][:left]
			reported := logged(middle)
			fmt.Fprintf(&b, "%s    (%d lines left out)\n", prefix, left-len(reported))
			for _, line := range reported {
				b.WriteString(prefix + line)
			}
		}
		for _, line := range lines[(len(lines)-left)/2+left:] {
			b.WriteString(prefix + line)
		}
	}
	if len(names) > 1 || strings.Count(b.String(), "\n") > 1+most {
		for _, name := range names {
			fmt.Fprintf(&b, "%sFAILED: %s\n", prefix, name)
		}
	}
	return b.String()
}

// reason is the last that a test itself has said, without the logs that it
// shows of what it had running: for most, why it gave up.
func (s *said) reason() string {
	lines := logged(s.own())
	for len(lines) > 0 && strings.HasSuffix(lines[len(lines)-1], "log:\n") {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		return ""
	}
	return ": " + strings.TrimSpace(lines[len(lines)-1])
}

// logged returns the last lines that a test itself has logged.
func logged(lines []string) (reported []string) {
	for _, line := range lines {
		if begins.MatchString(line) {
			reported = append(reported, line)
		}
	}
	return reported[max(0, len(reported)-mostBetween):]
}

// own are the lines that are not of the testing package.
func (s *said) own() []string {
	var own []string
	for _, line := range s.lines {
		text := strings.TrimLeft(line, " ")
		if !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") &&
			!strings.HasPrefix(line, "FAIL") && !strings.HasPrefix(line, "exit status ") {
			own = append(own, line)
		}
	}
	return own
}
