package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// most is how many of a test's lines are told again: its first ones hold the
// first thing that went wrong, its last ones the end.
const most = 60

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
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
				e = event{Action: "output", Output: line} // of go itself
			}
			switch e.Action {
			case "output", "build-output":
				if _, err := io.WriteString(out, prefix+e.Output); err != nil {
					return "", fmt.Errorf("print: %w", err)
				}
				if s := of(e); s.name != "" {
					s.lines = append(s.lines, e.Output)
				}
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
			return verdict(order, prefix), nil
		}
		if err != nil {
			return "", fmt.Errorf("read: %w", err)
		}
	}
}

// verdict is what those that failed have said, without what failed only for
// one of its own parts.
func verdict(all []*said, prefix string) string {
	var b strings.Builder
	for _, s := range all {
		lines := s.own()
		if !s.failed || s.failedBelow && len(lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%sFAILED: %s\n", prefix, s.name)
		left := max(len(lines)-most, 0)
		for _, line := range lines[:(len(lines)-left)/2] {
			b.WriteString(prefix + line)
		}
		if left > 0 {
			fmt.Fprintf(&b, "%s    (%d lines left out)\n", prefix, left)
		}
		for _, line := range lines[(len(lines)-left)/2+left:] {
			b.WriteString(prefix + line)
		}
	}
	return b.String()
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
