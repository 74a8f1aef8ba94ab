package addons

import (
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// Selection is a metric of the node as the mixin selects it.
type Selection struct {
	Metric string   `json:"metric"`
	Path   string   `json:"path"`   // of the kubelet's port
	Where  string   `json:"where"`  // matchers of PromQL
	Labels []string `json:"labels"` // that each series has to have
	Used   string   `json:"used"`
	Absent string   `json:"absent"` // why there is no such series; empty: there is
}

// ParseSelections reads mixin.yaml.
func ParseSelections(data []byte) ([]Selection, error) {
	var all []Selection
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		return nil, fmt.Errorf("read the mixin's selections: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("read the mixin's selections: there are none")
	}
	known := map[string]bool{}
	for _, s := range all {
		if s.Metric == "" || s.Used == "" || !strings.HasPrefix(s.Path, "/metrics") {
			return nil, fmt.Errorf("read the mixin's selections: %+v lacks a metric, a path or its use", s)
		}
		if known[s.Query()] {
			return nil, fmt.Errorf("read the mixin's selections: %s stands twice", s.Query())
		}
		known[s.Query()] = true
	}
	return all, nil
}

// Query is the instant query of PromQL for all series that have the labels.
func (s Selection) Query() string {
	matchers := []string{`job="kubelet"`, `metrics_path="` + s.Path + `"`}
	if s.Where != "" {
		matchers = append(matchers, s.Where)
	}
	for _, l := range s.Labels {
		matchers = append(matchers, l+`!=""`)
	}
	return s.Metric + "{" + strings.Join(matchers, ",") + "}"
}

// Judge returns what is wrong with the number of series that a query found, or
// nothing.
func (s Selection) Judge(series int) string {
	switch {
	case series == 0 && s.Absent == "":
		return "there is no series for: " + s.Used
	case series > 0 && s.Absent != "":
		return fmt.Sprintf("there are %d series, in spite of: %s", series, s.Absent)
	}
	return ""
}

// String names the selection, without the slashes that separate subtests.
func (s Selection) String() string {
	return strings.ReplaceAll(strings.TrimPrefix(s.Path, "/")+" "+s.Metric+"{"+s.Where+"}", "/", ".")
}
