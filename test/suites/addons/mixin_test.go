package addons

import (
	"os"
	"strings"
	"testing"
)

func TestMixinFile(t *testing.T) {
	data, err := os.ReadFile("mixin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := ParseSelections(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Errorf("%d selections", len(all))
	}
}

func TestParseSelections(t *testing.T) {
	const good = `- {metric: a, path: /metrics, used: x}`
	for _, tc := range []struct{ name, in, want string }{
		{"one", good, ""},
		{"empty", "", "there are none"},
		{"no use", `- {metric: a, path: /metrics}`, "lacks"},
		{"no path", `- {metric: a, used: x}`, "lacks"},
		{"no metric", `- {path: /metrics, used: x}`, "lacks"},
		{"unknown field", `- {metric: a, path: /metrics, used: x, label: y}`, "unknown field"},
		{"twice", good + "\n" + good, "stands twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseSelections([]byte(tc.in))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestQuery(t *testing.T) {
	s := Selection{Metric: "a", Path: "/metrics/cadvisor", Where: `image!=""`, Labels: []string{"pod", "le"}}
	if got, want := s.Query(), `a{job="kubelet",metrics_path="/metrics/cadvisor",image!="",pod!="",le!=""}`; got != want {
		t.Errorf("query %s, want %s", got, want)
	}
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		absent string
		series int
		good   bool
	}{{"", 1, true}, {"", 0, false}, {"why", 0, true}, {"why", 1, false}} {
		if got := (Selection{Absent: tc.absent}).Judge(tc.series); (got == "") != tc.good {
			t.Errorf("absent %q, %d series: %q", tc.absent, tc.series, got)
		}
	}
}
