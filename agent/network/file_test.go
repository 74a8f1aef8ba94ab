package network

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
)

func TestFolder(t *testing.T) {
	f := folder{filepath.Join(t.TempDir(), "a", "net.d")}
	if names, err := f.names(); err != nil || len(names) != 0 {
		t.Errorf("a folder that is not there: %v, %v", names, err)
	}
	if data, err := f.read(); data != nil || err != nil {
		t.Errorf("a file that is not there: %q, %v", data, err)
	}
	// What a call that was killed has left is in nobody's way, and does not pile
	// up.
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.path, FileName+atomicfile.Suffix), []byte("half of a much longer te"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		data    string
		changed bool
	}{{"one", true}, {"one", false}, {"two", true}} {
		if changed, err := f.write([]byte(row.data)); err != nil || changed != row.changed {
			t.Errorf("write %q: %v, %v", row.data, changed, err)
		}
		if got, err := f.read(); err != nil || string(got) != row.data {
			t.Errorf("read %q, %v", got, err)
		}
	}
	if names, err := f.names(); err != nil || len(names) != 1 || names[0] != FileName {
		t.Errorf("files %v, %v", names, err)
	}
	for range 2 {
		if err := f.remove(); err != nil {
			t.Error(err)
		}
		if names, err := f.names(); err != nil || len(names) != 0 {
			t.Errorf("files %v, %v", names, err)
		}
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(f.path), "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := folder{filepath.Join(filepath.Dir(f.path), "file")}
	if _, err := bad.write([]byte("x")); err == nil {
		t.Error("a file was taken for a folder")
	}
}

func TestProvidePlugin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	path := filepath.Join(dir, Plugin)
	provide := func(binary string) {
		t.Helper()
		if got, err := providePlugin([]string{dir}, binary); err != nil || got != dir {
			t.Fatalf("provided in %q, %v", got, err)
		}
	}
	for _, binary := range []string{"/usr/bin/tinylet", "/usr/bin/tinylet", "/opt/tinylet"} {
		provide(binary)
		if got, err := os.Readlink(path); err != nil || got != binary {
			t.Errorf("link to %q, %v", got, err)
		}
	}
	// A link of an image's to the binary, by another way.
	binary := filepath.Join(dir, "tinylet")
	if err := os.WriteFile(binary, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	relink(t, "tinylet", path)
	provide(binary)
	if got, err := os.Readlink(path); err != nil || got != "tinylet" {
		t.Errorf("an image's link leads to %q now, %v", got, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("their own"), 0o755); err != nil {
		t.Fatal(err)
	}
	provide("/usr/bin/tinylet")
	if got, err := os.ReadFile(path); err != nil || string(got) != "their own" {
		t.Errorf("it is now %q, %v", got, err)
	}
}

func relink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// TestProvidePluginInSeveral: the runtime has several plugin directories, some not
// writable.
func TestProvidePluginInSeveral(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	closed, first, second := filepath.Join(file, "bin"), filepath.Join(root, "1"), filepath.Join(root, "2")
	if got, err := providePlugin([]string{closed, first, second}, "/usr/bin/tinylet"); err != nil || got != first {
		t.Errorf("provided in %q, %v", got, err)
	}
	if got, err := providePlugin([]string{second, first}, "/usr/bin/tinylet"); err != nil || got != first {
		t.Errorf("one that has the plugin was passed over for %q, %v", got, err)
	}
	if _, err := providePlugin([]string{closed}, "/usr/bin/tinylet"); err == nil || !strings.Contains(err.Error(), closed) {
		t.Errorf("no directory to write to: %v", err)
	}
}

func TestProvideLoopback(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(t *testing.T, first, second string) // puts there what is there
		want   map[string]string                        // what the files say after it
	}{
		"none": {nil, map[string]string{"2/loopback": "ours"}},
		"another's in another directory": {func(t *testing.T, first, _ string) {
			program(t, filepath.Join(first, "loopback"), "their own")
		}, map[string]string{"1/loopback": "their own"}},
		"another's in the same": {func(t *testing.T, _, second string) {
			program(t, filepath.Join(second, "loopback"), "their own")
		}, map[string]string{"2/loopback": "their own"}},
		"another's script": {func(t *testing.T, _, second string) {
			program(t, filepath.Join(second, "loopback"), "#!/bin/sh\n")
		}, map[string]string{"2/loopback": "#!/bin/sh\n"}},
		"an empty file, as a power cut leaves it": {func(t *testing.T, _, second string) {
			program(t, filepath.Join(second, "loopback"), "")
		}, map[string]string{"2/loopback": "ours"}},
		"a link to nothing": {func(t *testing.T, _, second string) {
			if err := os.Symlink("/nowhere", filepath.Join(second, "loopback")); err != nil {
				t.Fatal(err)
			}
		}, map[string]string{"2/loopback": "ours"}},
		"ours of an older place, found first": {func(t *testing.T, first, _ string) {
			program(t, filepath.Join(first, "loopback"), "#!/old/tinylet-cni loopback\n")
		}, map[string]string{"1/loopback": "ours"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			first, second := filepath.Join(root, "1"), filepath.Join(root, "2")
			for _, dir := range []string{first, second} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if tt.before != nil {
				tt.before(t, first, second)
			}
			for range 2 {
				if err := provideLoopback([]string{first, second}, second); err != nil {
					t.Fatal(err)
				}
			}
			got := map[string]string{}
			for _, dir := range []string{"1", "2"} {
				entries, err := os.ReadDir(filepath.Join(root, dir))
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					name := filepath.Join(dir, e.Name())
					data, err := os.ReadFile(filepath.Join(root, name))
					if err != nil {
						t.Fatal(err)
					}
					got[name] = strings.ReplaceAll(string(data), "#!"+second+"/tinylet-cni loopback\n", "ours")
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func program(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestPlacesOf checks the directories that the runtime uses.
func TestPlacesOf(t *testing.T) {
	debian := container.Info{PluginDirs: []string{"/usr/lib/cni"}, ConfigDir: "/etc/cni/net.d", CallsLoopback: true}
	for name, tt := range map[string]struct {
		settings config.Network
		info     container.Info
		want     directories
	}{
		"without directories": {want: directories{"/etc/cni/net.d", []string{"/opt/cni/bin"}, false}},
		"the runtime":         {info: debian, want: directories{"/etc/cni/net.d", []string{"/usr/lib/cni"}, true}},
		"the settings": {config.Network{ConfigFolder: "/a", PluginFolder: "/b"}, debian,
			directories{"/a", []string{"/b"}, true}},
	} {
		if got := placesOf(tt.settings, tt.info); !cmp.Equal(got, tt.want, cmp.AllowUnexported(directories{})) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestRecall checks whether a file with tinylet's name is tinylet's.
func TestRecall(t *testing.T) {
	c := cni.Default()
	c.Ranges = []ipam.Range{{Prefix: netip.MustParsePrefix("10.1.0.0/24")}}
	conflist := func(name string) []byte {
		data, err := cni.Conflist(c, name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	mine := conflist(networkName)
	for _, row := range []struct {
		name   string
		data   []byte
		ours   bool
		ranges int
	}{
		{"none", nil, false, 0},
		{"ours", mine, true, 1},
		{"of our plugin, but for another network", conflist("mine"), false, 0},
		{"of another plugin", []byte(`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "bridge"}]}`), false, 0},
		{"of no plugin", []byte("{}"), false, 0},
		{"empty", []byte{}, true, 0},
		{"torn", mine[:len(mine)/2], true, 0},
		{"zeroes", make([]byte, len(mine)), true, 0},
		{"of a version to come", bytes.ReplaceAll(mine, []byte(`"10.1.0.0/24"`), []byte(`"auto"`)), true, 0},
	} {
		if got, ours := parseOwn(row.data); ours != row.ours || len(got.Ranges) != row.ranges {
			t.Errorf("%s: ours %v, %d networks", row.name, ours, len(got.Ranges))
		}
	}
}
