package policy

import (
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

func TestParse(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", ""},
		{"\n", ""},
		{"0", "0"},
		{"0-3,7", "0-3,7"},
		{"0-3,7\n", "0-3,7"},
		{"3,1,2", "1-3"},
		{"1-1", "1"},
		{"0-5,2-8", "0-8"},
		{"007", "7"},
		{"0-1023", "0-1023"},
		{"63-64", "63-64"},
		{"0,2,4", "0,2,4"},
	} {
		s, err := Parse(row.text)
		if err != nil || s.String() != row.want {
			t.Errorf("%q: %q, %v, want %q", row.text, s, err, row.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, row := range []struct{ text, says string }{
		{",", "not a list"},
		{"1,", "not a list"},
		{"-", "not a list"},
		{"1-", "not a list"},
		{"-1", "not a list"},
		{"3-1", "invalid range"},
		{"1-2-3", "not a list"},
		{"+1", "not a list"},
		{" 1", "not a list"},
		{"1\n\n", "not a list"},
		{"0-31:2/4", "not a list"},
		{"all", "not a list"},
		{"1024", "highest is 1023"},
		{"0-9999", "highest is 1023"},
		{"0-99999999999999999999999", "not a list"},
		{strings.Repeat("1,", maxList), "at most"},
	} {
		s, err := Parse(row.text)
		if err == nil || !strings.Contains(err.Error(), row.says) || !s.IsEmpty() {
			t.Errorf("%.20q: %q, %v, want an error with %q", row.text, s, err, row.says)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "0-3,7\n", "1023", "5-2", "0-,1", "+1", "0-31:2/4"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			if !s.IsEmpty() {
				t.Fatalf("%q: an error and %s", text, s)
			}
			return
		}
		shortest := s.String()
		if len(shortest) > maxList {
			t.Fatalf("%q has %d bytes", shortest, len(shortest))
		}
		if again, err := Parse(shortest); err != nil || !Equal(again, s) {
			t.Fatalf("%q is %q, which is %q (%v)", text, shortest, again, err)
		}
	})
}

// Equal does not distinguish the forms of the empty set.
func TestEqual(t *testing.T) {
	one := cpuset.New(1)
	for _, row := range []struct {
		a, b Set
		want bool
	}{
		{Set{}, cpuset.New(), true}, {one.Difference(one), Set{}, true}, {one, cpuset.New(1), true},
		{one, Set{}, false}, {Set{}, one, false}, {one, cpuset.New(2), false}, {one, cpuset.New(1, 2), false},
	} {
		if Equal(row.a, row.b) != row.want {
			t.Errorf("%q and %q: want %v", row.a, row.b, row.want)
		}
	}
}
