package metricstest

import (
	"slices"
	"strings"
	"testing"
)

func TestProblems(t *testing.T) {
	head := func(name, kind string) string { return "# HELP " + name + " Help.\n# TYPE " + name + " " + kind + "\n" }
	for _, row := range []struct {
		name, text string
		known      []string
		want       []string // each a part of one problem
	}{
		{name: "empty"},
		{name: "good", text: head("a_total", "counter") + "a_total{x=\"1\"} 1\na_total{x=\"2\"} 2\n" + head("b_bytes", "gauge") + "b_bytes 3\n" +
			head("c_seconds", "histogram") + "c_seconds_bucket{le=\"1\"} 1\nc_seconds_bucket{le=\"+Inf\"} 2\nc_seconds_sum 3\nc_seconds_count 2\n"},
		{name: "no text", text: "a_total{ 1\n", want: []string{"rejects", "outside"}},
		{name: "no header", text: "a 1\n", want: []string{"a: has no help", "a: has no type", "a: is outside"}},
		{name: "no help", text: "# HELP a \n# TYPE a gauge\na 1\n", want: []string{"a: has no help"}},
		{name: "counter", text: head("a", "counter") + "a 1\n", want: []string{"does not end in _total"}},
		{name: "known", text: head("a", "counter") + "a 1\n", known: []string{"a: is a counter, but its name does not end in _total"}},
		{name: "known no more", known: []string{"a: is bad"}, want: []string{"no longer a problem"}},
		{name: "negative", text: head("a_total", "counter") + "a_total -1\n", want: []string{"below 0"}},
		{name: "gauge", text: head("a_total", "gauge") + "a_total 1\n", want: []string{"not a counter"}},
		{name: "twice", text: head("a", "gauge") + "a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 1\n", want: []string{"twice"}},
		{name: "label le", text: head("a", "gauge") + "a{le=\"1\"} 1\n", want: []string{"the label le"}},
		{name: "camel label", text: head("a", "gauge") + "a{xY=\"1\"} 1\n", want: []string{"the label xY"}},
		{name: "camel", text: head("aB", "gauge") + "aB 1\n", want: []string{"lower case"}},
		{name: "unit", text: head("a_ms", "gauge") + "a_ms 1\n", want: []string{"unit"}},
		{name: "kind", text: head("a_gauge", "gauge") + "a_gauge 1\n", want: []string{"type in its name"}},
		{name: "part", text: head("a_count", "gauge") + "a_count 1\n", want: []string{"part of one"}},
		{name: "apart", text: head("a", "gauge") + "a{x=\"1\"} 1\n" + head("b", "gauge") + "b 1\na{x=\"2\"} 1\n", want: []string{"a: is outside"}},
		{name: "again", text: head("a", "gauge") + "a 1\n" + head("a", "gauge"), want: []string{"several groups", "rejects"}},
		{name: "sinking bucket", text: head("c", "histogram") + "c_bucket{le=\"1\"} 3\nc_bucket{le=\"+Inf\"} 2\nc_sum 3\nc_count 2\n", want: []string{"below the previous"}},
		{name: "count", text: head("c", "histogram") + "c_bucket{le=\"+Inf\"} 2\nc_sum 3\nc_count 3\n", want: []string{"count that differs"}},
		{name: "cut off", text: head("a", "gauge") + "a 1", want: []string{"no newline", "rejects"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := Problems([]byte(row.text), row.known...)
			for _, part := range row.want {
				if !slices.ContainsFunc(got, func(p string) bool { return strings.Contains(p, part) }) {
					t.Errorf("nothing of %q in %q", part, got)
				}
			}
			if len(row.want) == 0 && len(got) > 0 {
				t.Errorf("problems %q", got)
			}
		})
	}
}
