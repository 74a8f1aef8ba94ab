// Package metricstest checks the text of metrics by the rules of `promtool check
// metrics` and by a parser. It is for tests only.
package metricstest

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Render returns what write writes to a stream that open returns. open is
// metrics.NewStream. It fails t if the text has Problems, except for the known
// ones.
func Render[S interface{ Flush() error }](t testing.TB, open func(io.Writer) S, write func(S), known ...string) string {
	t.Helper()
	var text bytes.Buffer
	out := open(&text)
	write(out)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if problems := Problems(text.Bytes(), known...); len(problems) > 0 {
		t.Errorf("%q in\n%s", problems, text.Bytes())
	}
	return text.String()
}

// WantLines fails t for each line that text does not contain. A prefix of a line
// is enough.
func WantLines(t testing.TB, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
}

// Problems returns the problems of text, each as "name: what". It omits the known
// ones. It also reports each known problem that text does not have, so that lists
// of exceptions stay current.
func Problems(text []byte, known ...string) []string {
	l := &linter{}
	l.lines(text)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		l.add("text", "the parser rejects it: %v", err)
	}
	for name, f := range families {
		l.family(name, f)
	}
	var out []string
	for _, problem := range l.problems {
		if !slices.Contains(known, problem) {
			out = append(out, problem)
		}
	}
	for _, problem := range known {
		if !slices.Contains(l.problems, problem) {
			out = append(out, problem+" (no longer a problem)")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

type linter struct {
	problems []string
}

func (l *linter) add(name, format string, args ...any) {
	l.problems = append(l.problems, name+": "+fmt.Sprintf(format, args...))
}

// lines reports what a parser accepts: a family that is split, or that has no
// header.
func (l *linter) lines(text []byte) {
	seen := make(map[string]bool)
	current := ""
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			l.add("text", "the last line has no newline")
		}
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			current, _, _ = strings.Cut(rest, " ")
			if seen[current] {
				l.add(current, "is split into several groups")
			}
			seen[current] = true
			continue
		}
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		name := line[:strings.IndexAny(line+" ", "{ ")]
		if name != current && !slices.Contains([]string{current + "_bucket", current + "_sum", current + "_count"}, name) {
			l.add(name, "is outside of its family")
		}
	}
}

var (
	validName  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	typeInName = regexp.MustCompile(`_(counter|gauge|histogram|summary)(_|$)`)
	// badUnit are units that are not base units, and abbreviations of units.
	badUnit = regexp.MustCompile(`_(milliseconds|microseconds|nanoseconds|minutes|hours|days|weeks|kilobytes|megabytes|gigabytes|bits|` +
		`percent|percents|ms|us|ns|s|sec|secs|min|h|d|b|kb|mb|gb|tb|pb)(_|$)`)
)

func (l *linter) family(name string, f *dto.MetricFamily) {
	if f.GetHelp() == "" {
		l.add(name, "has no help")
	}
	if !validName.MatchString(name) {
		l.add(name, "is not spelled in lower case with underscores")
	}
	if typeInName.MatchString(name) {
		l.add(name, "has its type in its name")
	}
	if badUnit.MatchString(name) {
		l.add(name, "has a unit that is abbreviated or not a base unit")
	}
	switch total := strings.HasSuffix(name, "_total"); {
	case f.GetType() == dto.MetricType_UNTYPED:
		l.add(name, "has no type")
	case f.GetType() == dto.MetricType_COUNTER && !total:
		l.add(name, "is a counter, but its name does not end in _total")
	case f.GetType() != dto.MetricType_COUNTER && total:
		l.add(name, "is not a counter, but its name ends in _total")
	}
	if f.GetType() != dto.MetricType_HISTOGRAM && regexp.MustCompile(`_(bucket|sum|count)$`).MatchString(name) {
		l.add(name, "is not a histogram, but is named like a part of one")
	}
	seen := make(map[string]bool)
	for _, m := range f.GetMetric() {
		var labels []string
		for _, pair := range m.GetLabel() {
			labels = append(labels, pair.String())
			if !validName.MatchString(pair.GetName()) || pair.GetName() == "le" || pair.GetName() == "quantile" {
				l.add(name, "has the label %s", pair.GetName())
			}
		}
		slices.Sort(labels)
		if key := strings.Join(labels, ","); seen[key] {
			l.add(name, "has a sample twice: {%s}", key)
		} else {
			seen[key] = true
		}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			l.histogram(name, m.GetHistogram())
		}
		if c := m.GetCounter(); c != nil && c.GetValue() < 0 {
			l.add(name, "is a counter below 0")
		}
	}
}

func (l *linter) histogram(name string, h *dto.Histogram) {
	var below uint64
	for _, b := range h.GetBucket() {
		if b.GetCumulativeCount() < below {
			l.add(name, "has a cumulative bucket below the previous one")
		}
		below = b.GetCumulativeCount()
	}
	if n := len(h.GetBucket()); n == 0 || below != h.GetSampleCount() {
		l.add(name, "has a count that differs from its last bucket")
	}
}
