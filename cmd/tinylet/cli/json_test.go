package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
)

// controls has whatever drives a terminal, beside what looks alike in UTF-8.
func controls() string {
	var b strings.Builder
	for r := rune(0); r < 0x100; r++ {
		b.WriteRune(r)
	}
	return b.String() + "\x9b2J\u009b31m\\\u0080\u0920\u7fc2\U0001f600\u2028"
}

func TestJSONDrivesNoTerminal(t *testing.T) {
	want := controls()
	for name, print := range map[string]func(*bytes.Buffer, any) error{
		"document": func(b *bytes.Buffer, v any) error { return printJSON(b, v) },
		"line":     func(b *bytes.Buffer, v any) error { return newEncoder(b).Encode(v) },
	} {
		var out bytes.Buffer
		if err := print(&out, map[string]string{want: want}); err != nil {
			t.Fatal(err)
		}
		for _, r := range strings.ReplaceAll(out.String(), "\n", "") {
			if unicode.IsControl(r) {
				t.Errorf("%s: %U is raw", name, r)
			}
		}
		var got map[string]string
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		want := strings.ToValidUTF8(want, "\ufffd")
		if got[want] != want {
			t.Errorf("%s: read back as %q", name, got)
		}
		if !strings.Contains(out.String(), `\u009b31m`) || !strings.Contains(out.String(), "<") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// closed takes nothing.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestJSONToNobody(t *testing.T) {
	if err := printJSON(closed{}, 1); err == nil {
		t.Error("it was printed to nobody")
	}
}

func FuzzEscaped(f *testing.F) {
	f.Add("\u009b2J\x7f\u00a0\u00c2")
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var was, is string
		if err := errors.Join(json.Unmarshal(raw, &was), json.Unmarshal(escaped(raw), &is)); err != nil || is != was {
			t.Errorf("%q became %q, %v", was, is, err)
		}
		if i := strings.IndexFunc(string(escaped(raw)), unicode.IsControl); i >= 0 {
			t.Errorf("%q has a control character at %d", escaped(raw), i)
		}
	})
}
