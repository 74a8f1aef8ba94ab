package bench

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the chart and the table of README.md")

// TestSummary compares README.md's table and chart with RESULTS.md.
func TestSummary(t *testing.T) {
	results, err := os.ReadFile(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, string(results), *update)
}

// publish writes the files that are derived from the text of RESULTS.md, or
// compares them with it.
func publish(t *testing.T, results string, write bool) {
	t.Helper()
	all, err := summarize(results)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	image, err := chart(all)
	if err != nil {
		t.Fatal(err)
	}
	text, err := withTable(string(readme), all)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{chartFile: image, readmeFile: text} {
		if write {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s differs from %s; `go test ./test/bench -run TestSummary -update` writes it:\n%s", file, resultsFile, diff)
		}
	}
}

func TestSummarizeRejects(t *testing.T) {
	results, err := os.ReadFile(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"no row":   strings.Replace(string(results), "| "+summary[1].row, "| other", 1),
		"no ratio": strings.ReplaceAll(string(results), " % |", " – |"),
	} {
		if all, err := summarize(text); err == nil {
			t.Errorf("%s: %v", name, all)
		}
	}
	if _, err := withTable("# tinylet\n", nil); err == nil {
		t.Error("a README without a table was accepted")
	}
	if _, err := chart([]comparison{{name: "x", ratio: "–"}}); err == nil {
		t.Error("a ratio without a number was accepted")
	}
}
