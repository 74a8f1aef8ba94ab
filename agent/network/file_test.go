package network

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/tinylet/tinylet/net/cni"
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
	if err := os.WriteFile(filepath.Join(f.path, temporary), []byte("half of a much longer te"), 0o600); err != nil {
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
	for _, want := range []bool{true, false} {
		if changed, err := f.remove(); err != nil || changed != want {
			t.Errorf("remove: %v, %v", changed, err)
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

func TestLinkPlugin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	path := filepath.Join(dir, Plugin)
	for _, binary := range []string{"/usr/bin/tinylet", "/usr/bin/tinylet", "/opt/tinylet"} {
		if err := linkPlugin(dir, binary); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(path); err != nil || got != binary {
			t.Errorf("link to %q, %v", got, err)
		}
	}
	// A link of an image's to the binary, by another way.
	binary := filepath.Join(dir, "tinylet")
	if err := os.WriteFile(binary, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("tinylet", path); err != nil {
		t.Fatal(err)
	}
	if err := linkPlugin(dir, binary); err != nil {
		t.Fatal(err)
	}
	if got, err := os.Readlink(path); err != nil || got != "tinylet" {
		t.Errorf("an image's link leads to %q now, %v", got, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("their own"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := linkPlugin(dir, "/usr/bin/tinylet"); err != nil {
		t.Errorf("a program of the image's own: %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "their own" {
		t.Errorf("it is now %q, %v", got, err)
	}
}

// TestRecall is whose a file of our name is.
func TestRecall(t *testing.T) {
	c := cni.Default()
	c.Ranges = []cni.Range{{Subnet: netip.MustParsePrefix("10.1.0.0/24")}}
	conflist := func(name string) []byte {
		data, err := cni.Conflist(c, name, "")
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
		if got, ours := recall(row.data); ours != row.ours || len(got.Ranges) != row.ranges {
			t.Errorf("%s: ours %v, %d networks", row.name, ours, len(got.Ranges))
		}
	}
}
