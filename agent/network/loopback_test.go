package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

const (
	loopback     = `{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}`
	loopbackList = `{"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]}`
)

func TestOnlyLoopback(t *testing.T) {
	for _, row := range []struct {
		name, data string
		want       bool
	}{
		{"99-loopback.conf", loopback, true},
		{"99-loopback.json", loopback, true},
		{"200-loopback.conflist", loopbackList, true},
		{"twice.conflist", `{"plugins": [{"type": "loopback"}, {"type": "loopback"}]}`, true},
		{"and-more.conflist", `{"plugins": [{"type": "loopback"}, {"type": "bridge"}]}`, false},
		{"nothing.conflist", `{"plugins": []}`, false},
		{"null.conflist", `{"plugins": [null]}`, false},
		{"plugin.conflist", loopback, false},
		{"list.conf", loopbackList, false},
		{"99-loopback-by-name-alone.conf", `{"name": "loopback", "type": "bridge"}`, false},
		{"twice-the-key.conf", `{"type": "loopback", "type": "bridge"}`, false},
		{"no-type.conf", `{"name": "loopback"}`, false},
		{"other-type.conf", `{"type": 7}`, false},
		{"list-of.conf", `[` + loopback + `]`, false},
		{"empty.conf", "", false},
		{"torn.conf", loopback[:len(loopback)-2], false},
		{"more-behind.conf", loopback + "{}", false},
		{"long.conf", loopback + strings.Repeat(" ", maxLoopback), false},
		{"deep.conf", `{"type": "loopback", "x": ` + strings.Repeat("[", maxLoopback/2), false},
	} {
		path := filepath.Join(t.TempDir(), row.name)
		if err := os.WriteFile(path, []byte(row.data), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := OnlyLoopback(path); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}

// TestNoFile has paths that must not block and must not be read without a limit.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe.conf"), filepath.Join(dir, "zero.conf")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, dir, filepath.Join(dir, "none.conf")} {
		if OnlyLoopback(path) {
			t.Errorf("%s is taken for one", path)
		}
	}
}

// TestLoopbackOfDistributions has folders as distributions install them. Pods use
// tinylet's network unless the runtime uses the loopback file first.
func TestLoopbackOfDistributions(t *testing.T) {
	const shadowed = "give it a name that sorts after"
	for _, row := range []struct {
		name, mode string
		files      map[string]string
		want, log  string
		warns      bool
	}{
		{name: "behind ours", files: map[string]string{"99-loopback.conf": loopback, "200-loopback.conflist": loopbackList}, want: "pods0 10.1.0.0/24", log: "mode=bridge"},
		{name: "before ours", files: map[string]string{"00-loopback.conf": loopback}, want: "pods0 10.1.0.0/24", log: shadowed, warns: true},
		{name: "before ours, which is meant", mode: "routed", files: map[string]string{"00-loopback.conf": loopback}, want: "pods0 10.1.0.0/24", log: shadowed, warns: true},
		{name: "beside another's network", files: map[string]string{"99-loopback.conf": loopback, "50-x.conf": `{"type": "bridge"}`}, log: "mode=cni"},
		{name: "another's network first", mode: "bridge", files: map[string]string{"05-x.conf": `{"type": "bridge"}`, "07-loopback.conf": loopback}, want: "pods0 10.1.0.0/24", log: "network.mode of TinyletConfiguration to cni", warns: true},
		{name: "not to be understood", files: map[string]string{"99-loopback.conf": "loopback"}, log: "mode=cni"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, func(c *Config) {
					c.Settings.Mode = row.mode
					c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
				})
				if err := os.MkdirAll(l.folder, 0o755); err != nil {
					t.Fatal(err)
				}
				for name, data := range row.files {
					if err := os.WriteFile(filepath.Join(l.folder, name), []byte(data), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				l.run(t, func() {
					if got := l.written(t); got != row.want {
						t.Errorf("configuration %q, want %q", got, row.want)
					}
					if text := l.log.String(); !strings.Contains(text, row.log) || strings.Contains(text, "WARN") != row.warns {
						t.Errorf("log %s", text)
					}
				})
			})
		})
	}
}

func FuzzOnlyLoopback(f *testing.F) {
	f.Add(".conf", []byte(loopback))
	f.Add(".conflist", []byte(loopbackList))
	f.Fuzz(func(_ *testing.T, suffix string, data []byte) { _ = onlyLoopback(suffix, data) })
}
