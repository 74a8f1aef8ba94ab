package criconfig

import (
	"strings"
	"testing"
)

func TestParseEnvFile(t *testing.T) {
	for _, tc := range []struct{ name, data, want, fails string }{
		{"empty", "", "", ""},
		{"one", "K='v'", "v", ""},
		{"others", "A='a'\nK='v'\nZ='z'\n", "v", ""},
		{"not there", "A='a'\n", "", ""},
		{"the first of two", "K='1'\nK='2'\n", "1", ""},
		{"empty value", "K=''\n", "", ""},
		{"indented", " \t K='v'\n", "v", ""},
		{"blank lines and comments", "\n \t\n# K='no'\n  # K='no'\nK='v'", "v", ""},
		{"comment after", "K='v' # c'c", "v", ""},
		{"comment at once", "K='v'#c", "v", ""},
		{"blanks after", "K='v' \t", "v", ""},
		{"literal", `K='$A \n "x" #=y'`, `$A \n "x" #=y`, ""},
		{"many lines", "K='a\n\n # b\nc'\nL='l'", "a\n\n # b\nc", ""},
		{"of another, many lines", "A='K=\nK='\nK='v'", "v", ""},
		{"a blank before the value", "K= 'v'", "", ""},
		{"of another", "A= v\nK='v'", "v", ""},
		{"lines of DOS", "A='a'\r\nK='x\r\ny'\r\n", "x\ny", ""},
		{"odd names are names", "a b.c='1'\nK='v'", "v", ""},
		{"what comes later is not read", "K='v'\nnonsense", "v", ""},
		{"no =", "A='a'\n\nK", "", "line 3: missing ="},
		{"no name", "='v'", "", "line 1: missing name"},
		{"only blanks for a name", "\t ='v'", "", "line 1: missing name"},
		{"a blank before the =", "K ='v'", "", "line 1: blank before the ="},
		{"no quotes", "K=v", "", "line 1: value is not in single quotes"},
		{"nothing at all", "K=", "", "line 1: value is not in single quotes"},
		{"double quotes", `K="v"`, "", "line 1: value is not in single quotes"},
		{"more after it", "K='v'w", "", "line 1: text after"},
		{"more after it, two lines", "A='\n' 'w'", "", "line 2: text after"},
		{"open", "K='v\nw\n", "", "missing closing quote"},
		{"export", "export K='v'", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseEnvFile(tc.data, "K")
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("got %q, %v, want %q", got, err, tc.fails)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// FuzzParseEnvFile: a value is found again as it was written, after anything
// that can be read at all, and errors hold nothing of the file.
func FuzzParseEnvFile(f *testing.F) {
	f.Add("A='1'\n# c\n", "v\nw")
	f.Add("A='1", "")
	f.Fuzz(func(t *testing.T, before, value string) {
		const key = "K-7f3a"
		value = strings.ReplaceAll(strings.ReplaceAll(value, "'", ""), "\r", "")
		if strings.Contains(before, key) {
			return
		}
		if _, err := parseEnvFile(before, key); err != nil {
			if len(before) > 12 && strings.Contains(err.Error(), before) {
				t.Errorf("%q is in %v", before, err)
			}
			return
		}
		got, err := parseEnvFile(before+"\n"+key+"='"+value+"'", key)
		if err != nil || got != value {
			t.Errorf("after %q: %q became %q, %v", before, value, got, err)
		}
	})
}
