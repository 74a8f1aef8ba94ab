package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/store/upgrade"
)

// program writes a script that is asked for its version and for a check.
func program(t *testing.T, dir, name, version, platform, findings string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	text := "#!/bin/sh\ncase $1 in\nversion) echo '{\"kubeletVersion\": \"" + version + "\", \"platform\": \"" + platform + "\"}';;\n" +
		"check) echo '{\"findings\": [" + findings + "]}'; exit 1;;\nesac\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func newUpgrader(t *testing.T) (u upgrader, out *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	out = new(bytes.Buffer)
	return upgrader{
		files:  upgrade.Files{Dir: filepath.Join(dir, "state"), Program: filepath.Join(dir, "tinylet"), Former: filepath.Join(dir, "former"), Running: filepath.Join(dir, "tinylet")},
		client: local.NewClient(filepath.Join(dir, "socket")), out: out, poll: time.Millisecond,
	}, out
}

func TestVersionOf(t *testing.T) {
	dir, here := t.TempDir(), runtime.GOOS+"/"+runtime.GOARCH
	other := program(t, dir, "other", "v1.36.0+tinylet.9", "plan9/mips", "")
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, wrong := range map[string]string{
		program(t, dir, "good", "v1.36.0+tinylet.9", here, ""): "",
		other: `it is for "plan9/mips"`, text: "exec format error", "/bin/true": "unexpected end of JSON", filepath.Join(dir, "missing"): "no such file",
	} {
		d, err := versionOf(t.Context(), file)
		if wrong == "" && (err != nil || d.KubeletVersion != "v1.36.0+tinylet.9") || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("versionOf(%s) = %+v, %v, want an error with %q", filepath.Base(file), d, err, wrong)
		}
	}
}

// A failure that both binaries find is no reason against the new one.
func TestSelfCheck(t *testing.T) {
	const old, added, warning = `{"id": "clock", "level": "fail", "what": "1970", "remedy": "set it"}`,
		`{"id": "config", "level": "fail", "what": "unknown field x", "remedy": "remove it"}`, `{"id": "memory", "level": "warn", "what": "little"}`
	for _, tc := range []struct{ name, now, then, wrong string }{
		{"both are well", "", "", ""},
		{"both find the same", old, old, ""},
		{"a new warning", old, old + "," + warning, ""},
		{"the failure is gone", old, "", ""},
		{"a new failure", old, old + "," + added, "config: unknown field x; remove it"},
		{"no document", "", "{", "the check of"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u, _ := newUpgrader(t)
			dir := filepath.Dir(u.files.Program)
			program(t, dir, "tinylet", "v1", "", tc.now)
			next := program(t, dir, "next", "v2", "", tc.then)
			err := u.selfCheck(t.Context(), next, os.Getpid())
			if tc.wrong == "" && err != nil || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong) || !strings.Contains(err.Error(), "nothing was installed")) {
				t.Errorf("selfCheck = %v, want %q", err, tc.wrong)
			}
		})
	}
}

func TestUpgradeWaits(t *testing.T) {
	for _, undone := range []string{"", "it did not start"} {
		u, out := newUpgrader(t)
		next := program(t, filepath.Dir(u.files.Program), "next", "v2", "", "")
		program(t, filepath.Dir(u.files.Program), "tinylet", "v1", "", "")
		if err := u.files.Replace(next); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		time.AfterFunc(20*time.Millisecond, func() {
			defer close(ended)
			if undone != "" {
				if err := os.WriteFile(filepath.Join(u.files.Dir, "undone"), []byte(undone), 0o644); err != nil {
					t.Error(err)
				}
			}
			if err := u.files.Confirm(); err != nil {
				t.Error(err)
			}
		})
		err := u.wait(t.Context(), 1)
		<-ended // the trial's mark is gone before Confirm returns
		if undone == "" && (err != nil || !strings.Contains(out.String(), "confirmed")) || undone != "" && (err == nil || !strings.Contains(err.Error(), undone)) {
			t.Errorf("undone %q: %v, printed %q", undone, err, out)
		}
	}
}

func TestNoUpgradeOnTrial(t *testing.T) {
	u, _ := newUpgrader(t)
	next := program(t, filepath.Dir(u.files.Program), "next", "v2", "", "")
	program(t, filepath.Dir(u.files.Program), "tinylet", "v1", "", "")
	if err := u.files.Replace(next); err != nil {
		t.Fatal(err)
	}
	if err := u.run(t.Context(), next); err == nil || !strings.Contains(err.Error(), "on trial") {
		t.Errorf("run = %v", err)
	}
}
