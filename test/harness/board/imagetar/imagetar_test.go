package imagetar

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// program has the shape of a busybox: noise, the table of applets, noise.
func program(applets ...string) []byte {
	return []byte("\x7fELF noise\x00[\x00[[\x00" + strings.Join(applets, "\x00") + "\x00\x00more")
}

// entries reads an archive; it fails on an unsafe name.
func entries(t *testing.T, b []byte) (names []string, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.TrimSuffix(h.Name, "/"); !fs.ValidPath(n) {
			t.Errorf("entry named %q", h.Name)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%c %04o %s", h.Typeflag, h.Mode, h.Name)
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		names = append(names, line)
		files[h.Name] = data
	}
}

func TestLayer(t *testing.T) {
	b, err := layer([]File{
		{Name: "/bin/sh", Mode: 0o755, Data: []byte("x")},
		{Name: "bin/ls", Link: "sh"},
		{Name: "../../etc/passwd", Mode: 0o644},
		{Name: "tmp/", Mode: 0o777 | fs.ModeSticky},
		{Name: "tmp/", Mode: 0o700},
		{Name: "bin/su", Mode: 0o755 | fs.ModeSetuid | fs.ModeSetgid},
	})
	if err != nil {
		t.Fatal(err)
	}
	names, _ := entries(t, b)
	want := []string{
		"5 0755 bin/", "0 0755 bin/sh", "2 0777 bin/ls -> sh", "5 0755 etc/", "0 0644 etc/passwd", "5 1777 tmp/", "0 6755 bin/su",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	for _, name := range []string{"", "/", "..", "a/.."} {
		if _, err := layer([]File{{Name: name}}); err == nil {
			t.Errorf("file named %q was accepted", name)
		}
	}
}

// TestWrite reads an archive back along its descriptors.
func TestWrite(t *testing.T) {
	bb, err := Busybox("localhost/busybox:1", "arm", program("ash", "cat", "sh"))
	if err != nil {
		t.Fatal(err)
	}
	images := []Image{bb, {
		Name: "localhost/pause:1", GOARCH: "arm64", Entrypoint: []string{"/pause"}, User: "65535",
		Files: []File{{Name: "pause", Mode: 0o755, Data: []byte("p")}},
	}}
	var a, again bytes.Buffer
	if err := errors.Join(Write(&a, images...), Write(&again, images...)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), again.Bytes()) {
		t.Error("two archives of the same images differ")
	}
	_, files := entries(t, a.Bytes())
	blob := func(d descriptor, v any) []byte {
		t.Helper()
		hash := strings.TrimPrefix(d.Digest, "sha256:")
		b, ok := files["blobs/sha256/"+hash]
		if sum := sha256.Sum256(b); !ok || hex.EncodeToString(sum[:]) != hash || int64(len(b)) != d.Size {
			t.Fatalf("blob %+v has %d bytes", d, len(b))
		}
		if v != nil {
			if err := json.Unmarshal(b, v); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range index.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		blob(m, &manifest)
		var config struct {
			Architecture, OS, Variant string
			Config                    struct {
				Entrypoint, Cmd, Env []string
				User                 string
			}
			RootFS struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		blob(manifest.Config, &config)
		names, _ := entries(t, blob(manifest.Layers[0], nil))
		got = append(got, fmt.Sprint(m.Annotations["io.containerd.image.name"], " ", *m.Platform, " ", config.Config, " ", len(names)))
		if config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest || config.Variant != m.Platform.Variant {
			t.Errorf("config %+v does not fit %+v", config, m)
		}
	}
	want := []string{
		"localhost/busybox:1 {arm linux v7} {[] [sh] [PATH=/bin] } 13",
		"localhost/pause:1 {arm64 linux v8} {[/pause] [] [] 65535} 1",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestWriteRefuses(t *testing.T) {
	tests := []struct {
		name  string
		image Image
	}{
		{"no tag", Image{Name: "localhost:5000/x", GOARCH: "arm64"}},
		{"empty tag", Image{Name: "localhost/x:", GOARCH: "arm64"}},
		{"unknown architecture", Image{Name: "x:1", GOARCH: "mips"}},
		{"file without a name", Image{Name: "x:1", GOARCH: "arm", Files: []File{{Name: "/"}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := Write(io.Discard, tt.image); err == nil {
				t.Error("it was written")
			}
		})
	}
}

func TestApplets(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
		want []string // nil: refused
	}{
		{"table", program("ash", "cat", "sh"), []string{"[", "[[", "ash", "cat", "sh"}},
		{"ends where the order does", []byte("[\x00[[\x00cat\x00sh\x00Usage: \x00x"), []string{"[", "[[", "cat", "sh"}},
		{"ends with the file", []byte("[\x00[[\x00sh\x00zz"), []string{"[", "[[", "sh"}},
		{"no table", []byte("\x7fELF sh\x00"), nil},
		{"no shell", program("cat"), nil},
		{"empty", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Applets(tt.in)
			if (err != nil) != (tt.want == nil) {
				t.Fatalf("error %v", err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func FuzzApplets(f *testing.F) {
	f.Add(program("ash", "sh"))
	f.Fuzz(func(t *testing.T, in []byte) {
		bb, err := Busybox("x:1", "arm64", in)
		if err != nil {
			return
		}
		b, err := layer(bb.Files)
		if err != nil {
			return // a name that is none
		}
		names, _ := entries(t, b)
		for _, n := range names {
			if name, _, _ := strings.Cut(n[7:], " -> "); path.Clean(name) == "." {
				t.Errorf("entry %q", n)
			}
		}
	})
}
