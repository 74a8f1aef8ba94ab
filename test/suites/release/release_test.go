//go:build release

// Package release makes a release twice, in different directories, and installs it with
// its script.
package release

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRelease makes two releases of one commit and compares their files.
func TestRelease(t *testing.T) {
	key := newKey(t)
	first, second := makeRelease(t, key, "one"), makeRelease(t, key, "another/directory")
	names := files(t, first)
	if got := files(t, second); strings.Join(got, " ") != strings.Join(names, " ") {
		t.Fatalf("the second release has %v, the first %v", got, names)
	}
	for _, name := range names {
		a, b := read(t, filepath.Join(first, name)), read(t, filepath.Join(second, name))
		t.Logf("%9d %s", len(a), name)
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs", name)
		}
	}
	t.Run("install script", func(t *testing.T) { testInstallScript(t, first) })
}

func testInstallScript(t *testing.T, dir string) {
	if out, err := dryRun(dir); err != nil || !strings.Contains(out, "Verified tinylet_") {
		t.Fatalf("the unchanged release: %v\n%s", err, out)
	}
	if out, err := dryRun(dir, "--binary"); err != nil || !strings.Contains(out, "Verified tinylet-") {
		t.Fatalf("the binary of the unchanged release: %v\n%s", err, out)
	}
	installed, err := filepath.Glob(filepath.Join(dir, "tinylet_*_"+debian(t)+".deb"))
	if err != nil || len(installed) != 1 {
		t.Fatalf("packages: %v, %v", installed, err)
	}
	otherKey := newKey(t)
	for _, tc := range []struct {
		name, wrong string
		change      func(t *testing.T, dir string)
	}{
		{"one byte of the package", "has the checksum", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, filepath.Base(installed[0]))) }},
		{"one byte of the list", "signature", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "SHA256SUMS")) }},
		{"one byte of the signature", "signature", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "SHA256SUMS.sig")) }},
		{"an empty signature", "signature", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "SHA256SUMS.sig"), nil) }},
		{"another key", "signature", func(t *testing.T, dir string) { sign(t, otherKey, dir) }},
		{"a list without the package", "signature", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "SHA256SUMS"), []byte("# tinylet\n")) }},
		{"a huge list", "larger than", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "SHA256SUMS"), make([]byte, 1<<20)) }},
		{"no package", "failed", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, filepath.Base(installed[0]))) }},
		{"no signature", "failed", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "SHA256SUMS.sig")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := filepath.Join(t.TempDir(), "release")
			if err := os.CopyFS(changed, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			tc.change(t, changed)
			if out, err := dryRun(changed); err == nil || !strings.Contains(out, tc.wrong) || strings.Contains(out, "Verified") {
				t.Errorf("the script prints, with %v:\n%s\nwant %q", err, out, tc.wrong)
			}
		})
	}
	t.Run("an older release of the same key", func(t *testing.T) {
		script := string(read(t, filepath.Join(dir, "install.sh")))
		newer := filepath.Join(t.TempDir(), "install.sh")
		write(t, newer, []byte(strings.Replace(script, "VERSION=\"", "VERSION=\"9", 1)))
		out, err := exec.Command("sh", newer, "--dry-run", "--from", dir).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "another release") {
			t.Errorf("the script prints, with %v:\n%s", err, out)
		}
	})
	t.Run("a part of the script", func(t *testing.T) {
		script := read(t, filepath.Join(dir, "install.sh"))
		for _, part := range []int{2, 3, 10} {
			cut := filepath.Join(t.TempDir(), "install.sh")
			write(t, cut, script[:len(script)*(part-1)/part])
			if out, _ := exec.Command("sh", cut, "--dry-run", "--from", dir).CombinedOutput(); strings.Contains(string(out), "Verified") {
				t.Errorf("%d bytes of the script verify and install:\n%s", len(script)*(part-1)/part, out)
			}
		}
	})
}

// dryRun runs the install script of a release on that release.
func dryRun(dir string, args ...string) (string, error) {
	cmd := exec.Command("sh", append([]string{filepath.Join(dir, "install.sh"), "--dry-run", "--from", dir}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// makeRelease clones the checkout into a directory and makes a release there.
func makeRelease(t *testing.T, key, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	run(t, "git", "clone", "-q", "../../..", dir)
	run(t, "make", "-C", dir, "--no-print-directory", "release", "KEY="+key)
	return filepath.Join(dir, "bin", "release")
}

func newKey(t *testing.T) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key.pem")
	run(t, "openssl", "genpkey", "-algorithm", "ed25519", "-out", key)
	return key
}

func sign(t *testing.T, key, dir string) {
	t.Helper()
	list := filepath.Join(dir, "SHA256SUMS")
	run(t, "openssl", "pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", list, "-out", list+".sig")
}

func debian(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(run(t, "dpkg", "--print-architecture"))
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// files returns the names of the files of a release.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil || len(names) < 12 {
		t.Fatalf("%s has %d files (%v): %v", dir, len(names), err, names)
	}
	return names
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// flip changes one byte in the middle of a file.
func flip(t *testing.T, file string) {
	t.Helper()
	b := read(t, file)
	if len(b) == 0 {
		t.Fatal(fmt.Errorf("%s is empty", file))
	}
	b[len(b)/2] ^= 1
	write(t, file, b)
}
