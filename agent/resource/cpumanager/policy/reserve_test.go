package policy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestReserve(t *testing.T) {
	for _, row := range []struct {
		name                   string
		top                    Topology
		explicit, kube, system string
		want, says             string
	}{
		{"named", board(t, "0-3"), "3", "0", "0", "3", ""},
		{"named goes before the sums", board(t, "0-3"), "2-3", "1", "0", "2-3", ""},
		{"named is not online", board(t, "0-3"), "3-4", "0", "0", "", "CPU 4 is not online"},
		{"a fraction", board(t, "0-3"), "", "100m", "0", "0", ""},
		{"fractions that make one", board(t, "0-3"), "", "500m", "500m", "0", ""},
		{"fractions that make more than one", board(t, "0-3"), "", "501m", "500m", "0-1", ""},
		{"a core", paired(4), "", "2", "0", "0,4", ""},
		{"the lowest that are online", board(t, "2-5"), "", "1", "1", "2-3", ""},
		{"all", board(t, "0-3"), "", "4", "0", "0-3", ""},
		{"too much", board(t, "0-3"), "", "4", "1m", "", "reserve less"},
		{"far too much", board(t, "0-3"), "", "9E", "900E", "", "reserve less"},
		{"nothing", board(t, "0-3"), "", "0", "0", "", "set reservedSystemCPUs"},
		{"no topology", Topology{}, "", "1", "0", "", "not known"},
	} {
		got, err := Reserve(row.top, list(t, row.explicit), resource.MustParse(row.kube), resource.MustParse(row.system))
		if row.says != "" {
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s: %v, want an error with %q", row.name, err, row.says)
			}
			continue
		}
		if err != nil || got.String() != row.want {
			t.Errorf("%s: %s, %v, want %s", row.name, got, err, row.want)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, row := range []struct {
		given map[string]string
		want  Options
		says  string
	}{
		{nil, Options{}, ""},
		{map[string]string{"full-pcpus-only": "true"}, Options{FullPhysicalCPUs: true}, ""},
		{map[string]string{"full-pcpus-only": "false"}, Options{}, ""},
		{map[string]string{"full-pcpus-only": "yes"}, Options{}, "true or false"},
		{map[string]string{"strict-cpu-reservation": "false"}, Options{}, "not supported"},
	} {
		got, err := ParseOptions(row.given)
		if (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) || got != row.want {
			t.Errorf("%v: %v, %v", row.given, got, err)
		}
	}
}
