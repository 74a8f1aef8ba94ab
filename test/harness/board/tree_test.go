package board

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listing describes all below dir.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%v %s", info.Mode(), rel)
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line = "link " + rel + " -> " + target
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", b)
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		data := ""
		if h.Typeflag == tar.TypeReg {
			data = "evil"
			h.Size = int64(len(data))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func all(string) bool { return true }

func TestTreePutsFiles(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // what it makes must not depend on it
	dir := t.TempDir()
	tr, err := newTree(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	over := filepath.Join(dir, "overlay")
	for _, step := range []func() error{
		func() error {
			return tr.untar(bytes.NewReader(tarOf(t,
				tar.Header{Typeflag: tar.TypeDir, Name: "./empty/", Mode: 0o755},
				tar.Header{Typeflag: tar.TypeReg, Name: "./bin/prog", Mode: 0o4755},
				tar.Header{Typeflag: tar.TypeLink, Name: "./bin/hard", Linkname: "./bin/prog"},
				tar.Header{Typeflag: tar.TypeSymlink, Name: "./lib/l.so", Linkname: "l.so.1"},
			)), all)
		},
		func() error { return tr.dir("root", 0o700) },
		func() error { return tr.link("/var/run", "/run") },
		func() error { return os.MkdirAll(filepath.Join(over, "etc", "d"), 0o700) },
		func() error { return os.WriteFile(filepath.Join(over, "etc", "d", ".gitkeep"), nil, 0o600) },
		func() error { return os.WriteFile(filepath.Join(over, "etc", "script"), []byte("s"), 0o700) },
		func() error { return os.WriteFile(filepath.Join(over, "etc", "conf"), []byte("new"), 0o600) },
		func() error { return os.Symlink("script", filepath.Join(over, "etc", "alias")) },
		func() error { return tr.file("etc/conf", 0o600, strings.NewReader("old")) },
		func() error { return tr.copyDir(over, nil) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`-rw-r--r-- etc/conf "new"`,
		`-rwxr-xr-x etc/script "s"`,
		`-rwxr-xr-x usr/bin/hard "evil"`,
		`-rwxr-xr-x usr/bin/prog "evil"`,
		`drwx------ root`,
		`drwxr-xr-x etc`,
		`drwxr-xr-x etc/d`,
		`drwxr-xr-x usr`,
		`drwxr-xr-x usr/bin`,
		`drwxr-xr-x usr/lib`,
		`drwxr-xr-x var`,
		`link etc/alias -> script`,
		`link usr/lib/l.so -> l.so.1`,
		`link var/run -> /run`,
	}
	if d := cmp.Diff(want, listing(t, filepath.Join(dir, "root"))); d != "" {
		t.Error(d)
	}
}

// TestTreeKeepsIn has archives that try to write outside of the tree.
func TestTreeKeepsIn(t *testing.T) {
	reg := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	tests := []struct {
		name    string
		entries []tar.Header
		fails   bool
		want    []string // in the tree, if it does not fail
	}{
		{"parent", []tar.Header{reg("../../x")}, false, []string{`-rw-r--r-- x "evil"`}},
		{"absolute", []tar.Header{reg("/x")}, false, []string{`-rw-r--r-- x "evil"`}},
		{"parent within", []tar.Header{reg("a/../../x")}, false, []string{`-rw-r--r-- x "evil"`}},
		{"through an absolute link", []tar.Header{link("d", "/OUT"), reg("d/x")}, true, nil},
		{"through a relative link", []tar.Header{link("d", "../OUTNAME"), reg("d/x")}, true, nil},
		{"through two links", []tar.Header{link("a", "."), link("a/b", "../OUTNAME"), reg("b/x")}, true, nil},
		{"to an absolute link", []tar.Header{link("x", "/OUT/secret"), reg("x")}, false, []string{`-rw-r--r-- x "evil"`}},
		{"hard link to the outside", []tar.Header{{Typeflag: tar.TypeLink, Name: "x", Linkname: "/OUT/secret"}}, true, nil},
		{"hard link through a link", []tar.Header{link("d", "/OUT"), {Typeflag: tar.TypeLink, Name: "x", Linkname: "d/secret"}}, true, nil},
		{"file as folder", []tar.Header{reg("f"), reg("f/x")}, true, nil},
		{"device", []tar.Header{{Typeflag: tar.TypeBlock, Name: "disk", Devmajor: 8}}, true, nil},
		{"root itself", []tar.Header{reg("./.")}, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			out := filepath.Join(top, "outside")
			if err := os.MkdirAll(out, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(out, "secret"), []byte("s"), 0o600); err != nil {
				t.Fatal(err)
			}
			for i := range tt.entries {
				h := &tt.entries[i]
				h.Linkname = strings.NewReplacer("/OUTNAME", "/outside", "/OUT", out).Replace(h.Linkname)
			}
			tr, err := newTree(filepath.Join(top, "root"))
			if err != nil {
				t.Fatal(err)
			}
			defer tr.close()
			err = tr.untar(bytes.NewReader(tarOf(t, tt.entries...)), all)
			if (err != nil) != tt.fails {
				t.Errorf("error %v, want one: %v", err, tt.fails)
			}
			if err == nil {
				if d := cmp.Diff(tt.want, listing(t, filepath.Join(top, "root"))); d != "" {
					t.Error(d)
				}
			}
			if d := cmp.Diff([]string{`-rw------- secret "s"`}, listing(t, out)); d != "" {
				t.Errorf("outside of the tree: %s", d)
			}
		})
	}
}

func FuzzUntar(f *testing.F) {
	f.Add("a/../../x", "", "d", "../outside", byte(tar.TypeReg))
	f.Add("d/x", "d", "d", "/", byte(tar.TypeLink))
	f.Fuzz(func(t *testing.T, name, target, linkName, linkTarget string, kind byte) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []tar.Header{
			{Typeflag: tar.TypeSymlink, Name: linkName, Linkname: linkTarget},
			{Typeflag: kind, Name: name, Linkname: target, Mode: 0o644},
		} {
			if w.WriteHeader(&h) != nil {
				return // no archive can have it
			}
		}
		if w.Close() != nil {
			return
		}
		top := t.TempDir()
		tr, err := newTree(filepath.Join(top, "root"))
		if err != nil {
			t.Fatal(err)
		}
		defer tr.close()
		_ = tr.untar(&b, all) // refused or not, nothing may be outside
		entries, err := os.ReadDir(top)
		if err != nil || len(entries) != 1 {
			t.Errorf("beside the tree: %v %v", entries, err)
		}
	})
}

func FuzzPlace(f *testing.F) {
	for _, s := range []string{"", "/", "..", "./bin/sh", "lib64/ld.so", "usr/../bin/../../sbin/x", "a//b\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := place(name)
		if got != "" && !fs.ValidPath(got) && !strings.ContainsRune(got, 0xfffd) && strings.ToValidUTF8(got, "") == got {
			t.Errorf("place(%q) = %q is no relative path", name, got)
		}
		if again := place(got); again != got {
			t.Errorf("place(%q) = %q, then %q", name, got, again)
		}
		for _, top := range []string{"bin/", "sbin/", "lib/"} {
			if strings.HasPrefix(got, top) {
				t.Errorf("place(%q) = %q is not merged into usr", name, got)
			}
		}
	})
}
