package criconfig

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "EMPTY": "", "(": "paren", "x $(A": "odd"}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	for _, tc := range []struct{ name, in, want string }{
		{"none", "plain", "plain"},
		{"empty", "", ""},
		{"one", "$(A)", "1"},
		{"inside", "a$(A)b$(A)", "a1b1"},
		{"no second round", "$(B)", "$(A)"},
		{"empty value", "<$(EMPTY)>", "<>"},
		{"unknown", "$(NO)-$(A)", "$(NO)-1"},
		{"no name", "$()", "$()"},
		{"escaped", "$$(A)", "$(A)"},
		{"escaped twice", "$$$$(A)", "$$(A)"},
		{"escaped then expanded", "$$$(A)", "$1"},
		{"shell", "${A} $A $1", "${A} $A $1"},
		{"open", "$(A", "$(A"},
		{"open then more", "$(x $(A)", "odd"},
		{"last", "a$", "a$"},
		{"nested", "$($(A))", "$($(A))"},
		{"odd name", "$(()", "paren"},
		{"not a reference", "$é$(A)", "$é1"},
		{"not UTF-8", "$\xff", "$\ufffd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := expand(tc.in, lookup); got != tc.want {
				t.Errorf("expand(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A) $$ $(B $(A)")
	f.Fuzz(func(t *testing.T, s string) {
		unknown := expand(s, func(string) (string, bool) { return "", false })
		if !strings.Contains(s, "$") && unknown != s {
			t.Errorf("%q became %q", s, unknown)
		}
		// Nothing is lost but the first of $$ and of what is no UTF-8.
		if n := strings.Count(s, "$") - strings.Count(unknown, "$"); n < 0 || n > strings.Count(s, "$$") {
			t.Errorf("%q became %q", s, unknown)
		}
		asked := 0
		expand(s, func(string) (string, bool) { asked++; return "", true })
		if asked > strings.Count(s, "$(") {
			t.Errorf("%q: %d look-ups", s, asked)
		}
	})
}
