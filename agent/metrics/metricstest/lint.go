// Package metricstest holds the text of metrics against the rules that `promtool
// check metrics` has, and against a parser's. It is for tests; no binary links
// it.
package metricstest

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Problems are what is wrong with text, each as "name: what". Those of known
// are left out; one of known that is not there is told too, so that no list of
// exceptions outlives them.
func Problems(text []byte, known ...string) []string {
	l := &linter{}
	l.lines(text)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		l.add("text", "a parser refuses it: %v", err)
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
			out = append(out, problem+" (which is not so any more)")
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

// lines looks for what a parser forgives: a family that is told in two goes,
// or without its header.
func (l *linter) lines(text []byte) {
	told := make(map[string]bool)
	current := ""
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			l.add("text", "the last line has no end")
		}
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			current, _, _ = strings.Cut(rest, " ")
			if told[current] {
				l.add(current, "is told in more than one go")
			}
			told[current] = true
			continue
		}
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		name := line[:strings.IndexAny(line+" ", "{ ")]
		if name != current && !slices.Contains([]string{current + "_bucket", current + "_sum", current + "_count"}, name) {
			l.add(name, "stands outside of its family")
		}
	}
}

var (
	plain = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	kinds = regexp.MustCompile(`_(counter|gauge|histogram|summary)(_|$)`)
	// units are those that are no base units, and abbreviations of any.
	units = regexp.MustCompile(`_(milliseconds|microseconds|nanoseconds|minutes|hours|days|weeks|kilobytes|megabytes|gigabytes|bits|` +
		`percent|percents|ms|us|ns|s|sec|secs|min|h|d|b|kb|mb|gb|tb|pb)(_|$)`)
)

func (l *linter) family(name string, f *dto.MetricFamily) {
	if f.GetHelp() == "" {
		l.add(name, "has no help")
	}
	if !plain.MatchString(name) {
		l.add(name, "is not spelled in lower case with underscores")
	}
	if kinds.MatchString(name) {
		l.add(name, "has its type in its name")
	}
	if units.MatchString(name) {
		l.add(name, "has an abbreviated unit or none of the base units")
	}
	switch total := strings.HasSuffix(name, "_total"); {
	case f.GetType() == dto.MetricType_UNTYPED:
		l.add(name, "has no type")
	case f.GetType() == dto.MetricType_COUNTER && !total:
		l.add(name, "is a counter, and its name does not end in _total")
	case f.GetType() != dto.MetricType_COUNTER && total:
		l.add(name, "is no counter, and its name ends in _total")
	}
	if f.GetType() != dto.MetricType_HISTOGRAM && regexp.MustCompile(`_(bucket|sum|count)$`).MatchString(name) {
		l.add(name, "is no histogram, and is named like a part of one")
	}
	seen := make(map[string]bool)
	for _, m := range f.GetMetric() {
		var labels []string
		for _, pair := range m.GetLabel() {
			labels = append(labels, pair.String())
			if !plain.MatchString(pair.GetName()) || pair.GetName() == "le" || pair.GetName() == "quantile" {
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
			l.add(name, "has a bucket with less than those below it")
		}
		below = b.GetCumulativeCount()
	}
	if n := len(h.GetBucket()); n == 0 || below != h.GetSampleCount() {
		l.add(name, "has another count than in its last bucket")
	}
}
