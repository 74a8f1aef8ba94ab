package fake

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Program is how a container's process behaves. The zero value runs until it
// is stopped and ends at once on the stop signal.
type Program struct {
	// StartErr makes StartContainer fail with it: an invalid command.
	StartErr error
	// Ends says that the process ends by itself, After its start, with Code.
	Ends  bool
	After time.Duration
	Code  int32
	// Reason is the reason of the end; empty is Completed for 0, else Error.
	Reason string
	// IgnoreTerm says that the process ignores the stop signal, as the first
	// process of a PID namespace does that has no handler for it.
	IgnoreTerm bool
	// TermAfter passes between the stop signal and the end.
	TermAfter time.Duration
	// TermCode is the code of an end by the stop signal; 0 is 143.
	TermCode int32
	// Output is written to the log at the start, if logs are written.
	Output []string
}

// SetProgram makes containers behave so whose command (or, without a
// command, whose first argument) is path.
func (r *Runtime) SetProgram(path string, p Program) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.programs[path] = p
}

// program finds the behaviour of a command line: the test's own programs
// first, then a few applets of BusyBox. No command at all is the image's.
func (r *Runtime) program(argv []string, img *image) Program {
	if len(argv) == 0 {
		return img.program
	}
	if p, ok := r.programs[argv[0]]; ok {
		return p
	}
	name := strings.TrimPrefix(strings.TrimPrefix(argv[0], "/usr"), "/bin/")
	switch {
	case name == "true":
		return Program{Ends: true}
	case name == "false":
		return Program{Ends: true, Code: 1}
	case name == "echo":
		return Program{Ends: true, Output: []string{strings.Join(argv[1:], " ")}}
	case name == "sleep" && len(argv) == 2:
		return shell("exec sleep " + argv[1])
	case name == "sh" && len(argv) >= 3 && argv[1] == "-c":
		return shell(argv[2])
	}
	return Program{StartErr: fmt.Errorf("exec: %q: executable file not found in $PATH", argv[0])}
}

// shell understands scripts of echo, exit, sleep, trap and wait, separated
// by semicolons: enough to describe a process that ends, fails, hangs, or
// answers the stop signal. As the first process of its PID namespace it
// ignores that signal unless it has a trap for it.
func shell(script string) Program {
	p := Program{IgnoreTerm: true, Ends: true}
	for statement := range strings.SplitSeq(script, ";") {
		words := strings.Fields(strings.ReplaceAll(statement, "&", ""))
		if len(words) > 0 && words[0] == "exec" {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "echo":
			p.Output = append(p.Output, strings.Join(words[1:], " "))
		case "exit":
			if len(words) > 1 {
				p.Code = exitCode(words[1])
			}
			return p
		case "sleep":
			d, ok := sleepTime(words)
			p.After += d
			if !ok {
				p.Ends = false
				return p
			}
		case "trap":
			// trap "exit N" TERM
			if len(words) == 4 && strings.Trim(words[1], `"'`) == "exit" {
				p.IgnoreTerm = false
				p.TermCode = exitCode(strings.Trim(words[2], `"'`))
			}
		case "wait":
		default:
			return Program{Ends: true, Code: 127}
		}
	}
	return p
}

func exitCode(word string) int32 {
	n, err := strconv.ParseUint(word, 10, 8)
	if err != nil {
		return 2
	}
	return int32(n)
}

// sleepTime answers false for a sleep without end.
func sleepTime(words []string) (time.Duration, bool) {
	if len(words) < 2 {
		return 0, true
	}
	seconds, err := strconv.ParseFloat(words[1], 64)
	if err != nil || seconds >= 1e6 {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}
