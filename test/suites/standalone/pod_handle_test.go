//go:build board

package standalone

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/testpod/report"
)

// pod is one pod of the board, by its name in the manifest.
type pod struct {
	node
	name string
}

func (n node) pod(name string) pod { return pod{n, name} }

// full is the pod's name for the commands; those from a folder are in
// "default" unless they say otherwise.
func (p pod) full() string {
	if strings.Contains(p.name, "/") {
		return p.name + "-board"
	}
	return "default/" + p.name + "-board"
}

func (p pod) describe() string {
	out, err := p.vm.Run(p.ctx, "tinylet", "describe", p.full())
	if err != nil {
		return err.Error()
	}
	return string(out.Stdout) + string(out.Stderr)
}

func (p pod) document() (*cli.DescriptionDocument, error) {
	var d cli.DescriptionDocument
	return &d, p.ask(&d, "describe", p.full())
}

// until waits until cond answers "", and fails the check if it does not.
func (p pod) until(what string, cond func(*cli.DescriptionDocument) string) *cli.DescriptionDocument {
	p.Helper()
	start := time.Now()
	for {
		d, err := p.document()
		wrong := ""
		if err != nil {
			wrong = err.Error()
		} else {
			wrong = cond(d)
		}
		if wrong == "" {
			p.Logf("%s: %s (after %.0f s)", p.name, what, time.Since(start).Seconds())
			return d
		}
		if time.Since(start) > patience {
			p.Fatalf("%s: want %s; seen after %s: %s\n%s", p.name, what, patience, wrong, p.describe())
		}
		p.breathe(start)
	}
}

// breathe waits between two looks: the longer it has been, the longer, since
// each look takes the board's own time from what is waited for.
func (n node) breathe(start time.Time) {
	select {
	case <-time.After(min(max(time.Since(start)/6, time.Second), 4*time.Second)):
	case <-n.ctx.Done():
		n.Fatal(n.ctx.Err())
	}
}

// status waits for one of the words that ps shows.
func (p pod) status(words ...string) *cli.DescriptionDocument {
	p.Helper()
	return p.until("status "+strings.Join(words, " or "), func(d *cli.DescriptionDocument) string {
		if slices.Contains(words, d.Status) {
			return ""
		}
		return fmt.Sprintf("%s, phase %s: %s", d.Status, d.Phase, d.Object.Status.Message)
	})
}

// rejected waits until the pod failed for a reason.
func (p pod) rejected(reasons ...string) {
	p.Helper()
	p.until("rejected with "+strings.Join(reasons, " or "), func(d *cli.DescriptionDocument) string {
		if d.Phase == "Failed" && slices.Contains(reasons, d.Object.Status.Reason) {
			return ""
		}
		return fmt.Sprintf("phase %s, reason %q: %s", d.Phase, d.Object.Status.Reason, d.Object.Status.Message)
	})
}

// event waits until the pod has an event with a reason whose message has a
// text.
func (p pod) event(reason, text string) {
	p.Helper()
	p.until(fmt.Sprintf("event %s with %q", reason, text), func(d *cli.DescriptionDocument) string {
		for i := range d.Events {
			if e := &d.Events[i]; e.Reason == reason && strings.Contains(e.Message, text) {
				return ""
			}
		}
		return fmt.Sprintf("%d other events", len(d.Events))
	})
}

// gone waits until the pod is forgotten and says how long that took.
func (p pod) gone() time.Duration {
	p.Helper()
	start := time.Now()
	for {
		d, err := p.document()
		if err != nil && strings.Contains(err.Error(), "no pod has the name") {
			return time.Since(start)
		}
		if time.Since(start) > patience {
			p.Fatalf("%s: want it gone; after %s it is still there: %v %v\n%s", p.name, patience, d, err, p.describe())
		}
		p.breathe(start)
	}
}

// remove takes the manifest away.
func (p pod) remove() {
	p.Helper()
	p.sh("rm -f %s", path.Join(manifestDir, path.Base(p.name)+".yaml"))
}

// log is what a container wrote.
func (p pod) log(container string, flags ...string) string {
	p.Helper()
	out, err := p.vm.Run(p.ctx, append([]string{"tinylet", "logs", p.full(), "-c", container}, flags...)...)
	if err != nil {
		p.Fatal(err)
	}
	if out.Exit != 0 {
		return "no log: " + string(out.Stderr)
	}
	return strings.TrimSpace(string(out.Stdout))
}

// logged waits until a container's log has a text.
func (p pod) logged(container, text string) string {
	p.Helper()
	start := time.Now()
	for {
		said := p.log(container)
		if strings.Contains(said, text) {
			return said
		}
		if time.Since(start) > patience {
			p.Fatalf("%s: want %q in the log of %s; seen after %s: %s\n%s", p.name, text, container, patience, said, p.describe())
		}
		p.breathe(start)
	}
}

// report is what the program in a container reported.
func (p pod) report(container string) *report.Report {
	p.Helper()
	said := p.logged(container, `"uid":`)
	var r report.Report
	if err := json.Unmarshal([]byte(said), &r); err != nil {
		p.Fatalf("%s: the report of %s: %v: %.300s", p.name, container, err, said)
	}
	return &r
}

// fileState is a line of the program's "file stat".
type fileState struct {
	Path, Type, Mode     string
	UID, GID             int
	Size                 int64
	Link, Content, Error string
}

// stats are the files that a container looked at, by path.
func (p pod) stats(container string) map[string]fileState {
	p.Helper()
	p.until(container+" looked at its files", func(d *cli.DescriptionDocument) string {
		if c := find(d, container); c.State != "Terminated" {
			return c.State + " " + c.Reason + " " + c.Message
		}
		return ""
	})
	out := map[string]fileState{}
	for line := range strings.Lines(p.log(container)) {
		var f fileState
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			p.Fatalf("%s: files of %s: %v: %.300s", p.name, container, err, line)
		}
		out[f.Path] = f
	}
	return out
}

// same compares what is with what should be and says so in one line.
func (p pod) same(what string, want, got any) {
	p.Helper()
	if d := cmp.Diff(want, got); d != "" {
		p.Errorf("%s: %s: want %v, seen %v\n%s\n%s", p.name, what, want, got, d, p.describe())
		return
	}
	p.Logf("%s: %s: %v", p.name, what, got)
}

// holds is same for what is no comparison.
func (p pod) holds(what string, ok bool, seen any) {
	p.Helper()
	if !ok {
		p.Errorf("%s: want %s; seen: %v\n%s", p.name, what, seen, p.describe())
		return
	}
	p.Logf("%s: %s", p.name, what)
}

// find is a container of the pod, or an empty one.
func find(d *cli.DescriptionDocument, name string) cli.ContainerDocument {
	for _, c := range d.Containers {
		if c.Name == name {
			return c
		}
	}
	return cli.ContainerDocument{}
}

// condition is the pod's condition of that type as "True", or "False REASON".
func condition(d *cli.DescriptionDocument, kind v1.PodConditionType) string {
	for i := range d.Object.Status.Conditions {
		if c := &d.Object.Status.Conditions[i]; c.Type == kind {
			return strings.TrimSpace(string(c.Status) + " " + c.Reason)
		}
	}
	return ""
}

// process is the PID on the board of a container's first process.
func (p pod) process(container string) string {
	p.Helper()
	d, err := p.document()
	if err != nil {
		p.Fatal(err)
	}
	pid := p.tasks()[find(d, container).ID]
	if pid == "" {
		p.Fatalf("%s: container %s does not run\n%s", p.name, container, p.describe())
	}
	return pid
}
