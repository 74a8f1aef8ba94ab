package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestAge(t *testing.T) {
	at := func(now time.Time, uptime time.Duration) *system {
		return &system{now: func() time.Time { return now }, uptime: func() time.Duration { return uptime }}
	}
	boot := 10 * time.Minute
	epoch := time.Unix(30, 0)
	tests := []struct {
		name         string
		then         time.Time
		up           time.Duration
		want         string
		wantThisBoot string // of what cannot be older than the boot
	}{
		{"never", time.Time{}, boot, "-", "-"},
		{"now", now, boot, "0s", "0s"},
		{"rounding of two clocks", now.Add(time.Second), boot, "0s", "0s"},
		{"minutes", now.Add(-5 * time.Minute), boot, "5m", "5m"},
		{"before the boot", now.Add(-72 * time.Hour), boot, "3d", "10m"},
		{"clock was set back", now.Add(time.Hour), boot, "?", "?"},
		{"clock was not set yet", epoch, boot, "10m", "10m"},
		{"clock was not set yet, uptime unknown", epoch, 0, "?", "?"},
		{"uptime unknown", now.Add(-72 * time.Hour), 0, "3d", "3d"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := at(now, tt.up)
			if got := s.age(tt.then); got != tt.want {
				t.Errorf("age = %q, want %q", got, tt.want)
			}
			if got := s.ageThisBoot(tt.then); got != tt.wantThisBoot {
				t.Errorf("ageThisBoot = %q, want %q", got, tt.wantThisBoot)
			}
		})
	}
	t.Run("the clock itself is not set", func(t *testing.T) {
		if got := at(time.Unix(70, 0), boot).age(time.Unix(10, 0)); got != "60s" {
			t.Errorf("age = %q", got)
		}
	})
}

func TestMemory(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "-", 1: "1Ki", 1 << 10: "1Ki", 1<<20 - 1: "1024Ki", 1 << 20: "1.0Mi", 5<<20 + 300<<10: "5.3Mi",
		10 << 20: "10Mi", 1 << 30: "1024Mi", 10 << 30: "10Gi", 1 << 50: "1048576Gi",
	} {
		if got := memory(bytes); got != want {
			t.Errorf("memory(%d) = %q, want %q", bytes, got, want)
		}
	}
}

// controls returns all control characters, and characters with similar UTF-8 encodings.
func controls() string {
	var b strings.Builder
	for r := rune(0); r < 0x100; r++ {
		b.WriteRune(r)
	}
	return b.String() + "\x9b2J\u009b31m\\\u0080\u0920\u7fc2\U0001f600\u2028"
}

func TestJSONHasNoControlCharacters(t *testing.T) {
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

// closed fails each write.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestJSONWriteError(t *testing.T) {
	if err := printJSON(closed{}, 1); err == nil {
		t.Error("no error")
	}
}

func FuzzEscapeJSON(f *testing.F) {
	f.Add("\u009b2J\x7f\u00a0\u00c2")
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		escaped := jsonControls().Replace(string(raw))
		var was, is string
		if err := errors.Join(json.Unmarshal(raw, &was), json.Unmarshal([]byte(escaped), &is)); err != nil || is != was {
			t.Errorf("%q became %q, %v", was, is, err)
		}
		if i := strings.IndexFunc(escaped, unicode.IsControl); i >= 0 {
			t.Errorf("%q has a control character at %d", escaped, i)
		}
	})
}
