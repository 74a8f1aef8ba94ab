package fake

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Program is the behavior of a container's process. The zero value runs until
// it is stopped, and exits at once on the stop signal.
type Program struct {
	// StartErr is the error of StartContainer, as for an invalid command.
	StartErr error
	// Ends makes the process exit with Code, After its start.
	Ends  bool
	After time.Duration
	Code  int32
	// IgnoreTerm makes the process ignore the stop signal, like the first
	// process of a PID namespace without a handler.
	IgnoreTerm bool
	// TermCode is the exit code after the stop signal; 0 is 143.
	TermCode int32
	// Output is written to the log at the start, if logs are written.
	Output []string
}

// SetProgram sets the behavior of containers whose command (or, without a
// command, whose first argument) is path.
func (r *Runtime) SetProgram(path string, p Program) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.programs[path] = p
}

// program returns the behavior of a command line: that of SetProgram first,
// then that of a few applets of BusyBox. An empty command line runs the image's
// program.
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

// shell interprets scripts of echo, exit, sleep, trap and wait, separated by
// semicolons: enough for a process that exits, fails, hangs, or handles the
// stop signal. As the first process of its PID namespace it ignores that signal
// unless it has a trap for it.
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

// sleepTime returns the duration of a sleep, and false for an endless one.
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
