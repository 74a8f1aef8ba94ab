package cpio

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// list reads an archive back by the format's rules.
func list(t *testing.T, b []byte) []string {
	t.Helper()
	field := func(off, i int) int {
		n, err := strconv.ParseUint(string(b[off+6+8*i:off+14+8*i]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	align := func(n int) int { return (n + 3) &^ 3 }
	var out []string
	for off := 0; ; {
		if string(b[off:off+6]) != "070701" {
			t.Fatalf("no entry at offset %d", off)
		}
		mode, size, nameSize := field(off, 1), field(off, 6), field(off, 11)
		name := string(b[off+110 : off+110+nameSize-1])
		if name == trailer {
			return out
		}
		data := align(off + 110 + nameSize)
		out = append(out, fmt.Sprintf("%o %s %q", mode, name, b[data:data+size]))
		off = align(data + size)
	}
}

func TestWriter(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, err := range []error{
		w.File("/init", 0o755, []byte("#!/bin/sh\n")),
		w.File("lib/modules/a.ko", 0o644, []byte("12345")),
		w.Dir("lib", 0o700),
		w.Symlink("bin/sh", "busybox"),
		w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`100755 init "#!/bin/sh\n"`,
		`40755 lib ""`,
		`40755 lib/modules ""`,
		`100644 lib/modules/a.ko "12345"`,
		`40755 bin ""`,
		`120777 bin/sh "busybox"`,
	}
	if d := cmp.Diff(want, list(t, b.Bytes())); d != "" {
		t.Error(d)
	}
	if b.Len()%512 != 0 {
		t.Errorf("archive of %d bytes is not padded", b.Len())
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "/", "..", trailer, "a\x00b"} {
		if err := NewWriter(&bytes.Buffer{}).File(name, 0o644, nil); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	var b bytes.Buffer
	w := NewWriter(&b)
	if err := w.File("../../x", 0o644, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{`100644 x ""`}, list(t, b.Bytes())); d != "" {
		t.Error(d)
	}
}
