package fake

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// stdoutOfFirst is the standard output of a container's first process. A
// command writes to the container's log through it.
const stdoutOfFirst = "/proc/1/fd/1"

// applets runs a command of BusyBox, or a script of such commands.
func (e *execution) applets(cmd []string, wait func(time.Duration, bool) error) error {
	name := strings.TrimPrefix(strings.TrimPrefix(cmd[0], "/usr"), "/bin/")
	if name != "sh" {
		known, _, err := e.applet(append([]string{name}, cmd[1:]...), wait)
		if !known {
			return fmt.Errorf("exec: %q: executable file not found in $PATH", cmd[0])
		}
		return err
	}
	if len(cmd) < 3 || cmd[1] != "-c" {
		return fmt.Errorf("exec: %q has no script", cmd)
	}
	for statement := range strings.SplitSeq(cmd[2], ";") {
		words := strings.Fields(statement)
		if len(words) == 0 {
			continue
		}
		known, exits, err := e.applet(words, wait)
		if !known {
			fmt.Fprintf(&e.stderr, "sh: %s: not found\n", words[0])
			e.code = 127
		}
		if err != nil || exits {
			return err
		}
	}
	return nil
}

// applet runs one command without quotes or variables. exits reports whether a
// script ends with it.
func (e *execution) applet(words []string, wait func(time.Duration, bool) error) (known, exits bool, err error) {
	e.code = 0
	arg := ""
	if len(words) > 1 {
		arg = words[len(words)-1]
	}
	switch words[0] {
	case "true":
	case "false":
		e.code = 1
	case "exit":
		if arg != "" {
			e.code = exitCode(arg)
		}
		return true, true, nil
	case "sleep":
		d, ends := sleepTime(words)
		return true, false, wait(d, !ends)
	case "echo":
		e.echo(words[1:])
	case "cat", "test", "touch", "rm":
		e.file(words[0], arg)
	default:
		return false, false, nil
	}
	return true, false, nil
}

// echo supports the redirections >&2, > file and >file.
func (e *execution) echo(words []string) {
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, ">") })
	if at < 0 {
		e.stdout.WriteString(strings.Join(words, " ") + "\n")
		return
	}
	line, target := strings.Join(words[:at], " "), strings.TrimPrefix(strings.Join(words[at:], ""), ">")
	switch target {
	case "&2":
		e.stderr.WriteString(line + "\n")
	case stdoutOfFirst:
		e.r.mu.Lock()
		defer e.r.mu.Unlock()
		if err := e.p.print(line); err != nil {
			e.code = 1
		}
	default:
		e.r.mu.Lock()
		defer e.r.mu.Unlock()
		e.p.files[target] = line + "\n"
	}
}

func (e *execution) file(verb, path string) {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	content, there := e.p.files[path]
	switch verb {
	case "touch":
		e.p.files[path] = content
	case "rm":
		delete(e.p.files, path)
	case "test":
		if !there {
			e.code = 1
		}
	case "cat":
		if !there {
			fmt.Fprintf(&e.stderr, "cat: can't open '%s': No such file or directory\n", path)
			e.code = 1
		}
		e.stdout.WriteString(content)
	}
}
