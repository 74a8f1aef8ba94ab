package volume

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func host(path string, kind v1.HostPathType) v1.Volume {
	return v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/file", "")
	for name, target := range map[string]string{"link": dir, "dangling": dir + "/none", "file-link": dir + "/file"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()

	for _, tc := range []struct {
		path string
		kind v1.HostPathType
		fail string
	}{
		{"nowhere", v1.HostPathUnset, ""},
		{".", v1.HostPathDirectory, ""},
		{"link", v1.HostPathDirectory, ""},
		{"file", v1.HostPathDirectory, "is a file"},
		{"nowhere", v1.HostPathDirectory, "no such file"},
		{"new/deep", v1.HostPathDirectoryOrCreate, ""},
		{"new/deep", v1.HostPathDirectoryOrCreate, ""},
		{"file", v1.HostPathDirectoryOrCreate, "is a file"},
		{"dangling", v1.HostPathDirectoryOrCreate, "exists"},
		{"file", v1.HostPathFile, ""},
		{"file-link", v1.HostPathFile, ""},
		{"fifo", v1.HostPathFile, "is a named pipe"},
		{"new-file", v1.HostPathFileOrCreate, ""},
		{"new-file", v1.HostPathFileOrCreate, ""},
		{"none/new-file", v1.HostPathFileOrCreate, "no such file"},
		{".", v1.HostPathFileOrCreate, "is a directory"},
		{"socket", v1.HostPathSocket, ""},
		{"file", v1.HostPathSocket, "is a file"},
		{"/dev/null", v1.HostPathCharDev, ""},
		{"socket", v1.HostPathCharDev, "is a socket"},
		{"/dev/null", v1.HostPathBlockDev, "is a character device"},
		{"file", "Banana", "unknown hostPath.type"},
	} {
		t.Run(string(tc.kind)+" "+tc.path, func(t *testing.T) {
			path := tc.path
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			got, err := pathsOf(New(t.TempDir()).Setup(t.Context(), podWith("u", host(path, tc.kind)), Input{}))
			switch {
			case tc.fail == "" && (err != nil || got["h"] != path):
				t.Errorf("got %v, %v", got, err)
			case tc.fail != "" && (err == nil || !strings.Contains(err.Error(), tc.fail)):
				t.Errorf("got %v, want %q", err, tc.fail)
			}
		})
	}
	// No type is no check.
	v := v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir + "/nowhere"}}}
	if _, err := pathsOf(New(t.TempDir()).Setup(t.Context(), podWith("u", v), Input{})); err != nil {
		t.Error(err)
	}
}

func TestTerminationMessage(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	root := t.TempDir()
	v := New(root)
	shape := regexp.MustCompile("^" + regexp.QuoteMeta(root) + "/pods/u/containers/c/[0-9a-f]{8}$")
	seen := map[string]bool{}
	var last string
	for range 3 {
		path, err := v.TerminationMessage("u", "c")
		if err != nil {
			t.Fatal(err)
		}
		if !shape.MatchString(path) || seen[path] {
			t.Errorf("got %s", path)
		}
		if got := modeOf(t, path); got != 0o666 {
			t.Errorf("mode %v", got)
		}
		seen[path], last = true, path
	}
	if err := v.RemoveTerminationMessages("u", "c", func(path string) bool { return path != last }); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Dir(last))
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(last) {
		t.Errorf("left %v, %v", left, err)
	}
	all := func(string) bool { return true }
	if err := v.RemoveTerminationMessages("u", "none", all); err != nil {
		t.Errorf("nothing to drop: %v", err)
	}
	for _, bad := range [][2]string{{"..", "c"}, {"u", "../../x"}, {"", "c"}, {"u", "."}} {
		uid, container := types.UID(bad[0]), bad[1]
		if _, err := v.TerminationMessage(uid, container); err == nil {
			t.Errorf("%q: made", bad)
		}
		if err := v.RemoveTerminationMessages(uid, container, all); err == nil {
			t.Errorf("%q: dropped", bad)
		}
	}
}

func TestWriteHosts(t *testing.T) {
	root := t.TempDir()
	v := New(root)
	var path string
	for _, content := range []string{"long long long\n", "short\n", "short\n", ""} {
		got, err := v.WriteHosts("u", []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(got)
		if err != nil || string(raw) != content || got != root+"/pods/u/etc-hosts" {
			t.Errorf("%s: got %q, %v, want %q", got, raw, err, content)
		}
		path = got
	}
	// Containers hold the file open by its inode, and may have written it.
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, strings.Repeat("junk", 1000))
	if _, err := v.WriteHosts("u", []byte("new\n")); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) || after.Size() != 4 {
		t.Errorf("another file, or %d bytes: %v", after.Size(), err)
	}
	if _, err := v.WriteHosts("../u", nil); err == nil {
		t.Error("a way out passed")
	}
}
