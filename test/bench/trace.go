package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// trace is a pod's start by the calls that tinylet made of the container
// runtime, as it logs them at --v=4.
type trace struct {
	pod                    string
	sandbox, create, start span
}

// span is one call, from when the manifest of the first pod was read.
type span struct{ from, to time.Duration }

// parseTraces reads the log of tinylet: the pods whose names begin with a
// prefix, in the order in which their sandboxes were asked for.
func parseTraces(log, prefix string) ([]*trace, error) {
	var first time.Time
	byUID, bySandbox, byContainer := map[string]*trace{}, map[string]*trace{}, map[string]*trace{}
	for line := range strings.Lines(log) {
		a := attributes(line)
		at, err := time.Parse(time.RFC3339Nano, a["time"])
		if err != nil {
			continue // what others have printed
		}
		name, isPod := strings.CutPrefix(a["pod"], "default/")
		if a["op"] == "ADD" && isPod && strings.HasPrefix(name, prefix) {
			if first.IsZero() {
				first = at
			}
			byUID[a["podUID"]] = &trace{pod: name}
		}
		if a["call"] == "" {
			continue
		}
		took, err := time.ParseDuration(a["took"])
		if err != nil {
			return nil, fmt.Errorf("read trace: %w", err)
		}
		to := at.Sub(first)
		call := span{to - took, to}
		switch a["call"] {
		case "RunPodSandbox":
			if t := byUID[a["podUID"]]; t != nil {
				t.sandbox, bySandbox[a["sandboxID"]] = call, t
			}
		case "CreateContainer":
			if t := bySandbox[a["sandboxID"]]; t != nil {
				t.create, byContainer[a["containerID"]] = call, t
			}
		case "StartContainer":
			if t := byContainer[a["containerID"]]; t != nil {
				t.start = call
			}
		}
	}
	var out []*trace
	for _, t := range byUID {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *trace) int {
		return cmp.Or(cmp.Compare(a.sandbox.from, b.sandbox.from), cmp.Compare(a.pod, b.pod))
	})
	return out, nil
}

// attributes are those of a line of slog's text handler. A quoted value is cut
// at its first space: none of those that are read has one.
func attributes(line string) map[string]string {
	out := map[string]string{}
	for _, f := range strings.Fields(line) {
		if key, value, ok := strings.Cut(f, "="); ok {
			out[key] = value
		}
	}
	return out
}

// traceTable is the table of a burst's pods.
func traceTable(traces []*trace) string {
	var s strings.Builder
	s.WriteString("| pod | sandbox asked for after | sandbox | until create | create | start | started after |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for _, t := range traces {
		fmt.Fprintf(&s, "| %s | %s | %s | %s | %s | %s | %s |\n", t.pod, hundredths(t.sandbox.from), hundredths(t.sandbox.to-t.sandbox.from),
			hundredths(max(0, t.create.from-t.sandbox.to)), hundredths(t.create.to-t.create.from), hundredths(t.start.to-t.start.from), hundredths(t.start.to))
	}
	return s.String()
}

// hundredths is a time; a call that was not made has none.
func hundredths(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
