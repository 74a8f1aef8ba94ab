package board

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMirrorFormats(t *testing.T) {
	tests := []struct {
		name  string
		parse func(string) string
		in    string
		want  string
	}{
		{"one line", listMirror, "deb http://m.example/debian trixie main\n", "http://m.example/debian"},
		{"options and more components", listMirror, "deb [arch=amd64 signed-by=/k.gpg] https://m.example/debian/ bookworm contrib main # x\n", "https://m.example/debian"},
		{"comment", listMirror, "# deb http://m.example/debian trixie main\n", ""},
		{"sources only", listMirror, "deb-src http://m.example/debian trixie main\n", ""},
		{"updates and security are no mirrors", listMirror,
			"deb http://s.example/debian-security trixie-security main\ndeb http://m.example/debian trixie-updates main\n", ""},
		{"second line", listMirror, "deb http://s.example/debian-security trixie-security main\ndeb http://m.example/debian stable main\n", "http://m.example/debian"},
		{"other distribution", listMirror, "deb http://m.example/ubuntu noble main\n", ""},
		{"not on the web", listMirror, "deb cdrom:[Debian]/ trixie main\ndeb file:/srv/debian trixie main\n", ""},
		{"without main", listMirror, "deb http://m.example/debian trixie non-free\n", ""},
		{"bracket without end", listMirror, "deb [arch=amd64 http://m.example/debian trixie main\n", ""},
		{"stanza", deb822Mirror, "Types: deb deb-src\nURIs: http://m.example/debian/\nSuites: trixie trixie-updates\nComponents: main\n", "http://m.example/debian"},
		{"second stanza", deb822Mirror,
			"Types: deb\nURIs: http://s.example/debian-security\nSuites: trixie-security\nComponents: main\n\n" +
				"Types: deb\nURIs: http://m.example/debian\nSuites: trixie\nComponents: main\n", "http://m.example/debian"},
		{"continued lines", deb822Mirror, "Types: deb\nURIs:\n mirror+file:/x\n http://m.example/debian\nSuites:\n# note\n\ttrixie\nComponents: main contrib\n", "http://m.example/debian"},
		{"names in any case", deb822Mirror, "TYPES: deb\nuris: http://m.example/debian\nSuites: sid\ncomponents: main\n", "http://m.example/debian"},
		{"disabled", deb822Mirror, "Enabled: no\nTypes: deb\nURIs: http://m.example/debian\nSuites: trixie\nComponents: main\n", ""},
		{"continuation first", deb822Mirror, " x\nTypes: deb\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.parse(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDebianMirror(t *testing.T) {
	t.Setenv(mirrorVariable, "")
	dir := t.TempDir()
	if _, err := debianMirror(dir); err == nil || !strings.Contains(err.Error(), mirrorVariable) {
		t.Errorf("error %v does not name the remedy", err)
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string) {
		t.Helper()
		if got, err := debianMirror(dir); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	write("sources.list.d/debian.sources", "Types: deb\nURIs: http://b.example/debian\nSuites: trixie\nComponents: main\n")
	check("http://b.example/debian")
	write("sources.list", "deb http://a.example/debian bookworm main\n")
	check("http://a.example/debian")
	t.Setenv(mirrorVariable, "http://c.example/debian/")
	check("http://c.example/debian")
}

func FuzzMirror(f *testing.F) {
	f.Add("deb [a=b] http://m.example/debian trixie main # x")
	f.Add("Types: deb\nURIs: http://m.example/debian\n x\n\nSuites: trixie\nComponents: main\n")
	f.Fuzz(func(t *testing.T, in string) {
		for _, m := range []string{listMirror(in), deb822Mirror(in)} {
			if m == "" {
				continue
			}
			// It becomes one word of a sources.list.
			if strings.ContainsAny(m, " \t\n[]#") || !strings.HasPrefix(m, "http") {
				t.Errorf("mirror %q", m)
			}
		}
	})
}
