package agent

import "testing"

func TestProblems(t *testing.T) {
	is := func(text string) func() string { return func() string { return text } }
	for _, row := range [][3]string{{"", "", ""}, {"a", "", "a"}, {"", "b", "b"}, {"a", "b", "a; b"}} {
		if got := problems(is(row[0]), is(row[1]))(); got != row[2] {
			t.Errorf("%q and %q: %q", row[0], row[1], got)
		}
	}
}
