package journal

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestSealed(t *testing.T) {
	dir := t.TempDir()
	if _, err := Sealed(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no journal: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Sealed(dir); err == nil {
		t.Error("a torn journal")
	}
	for name, key := range map[string][]byte{"plain": nil, "sealed": testKey(1)} {
		dir := t.TempDir()
		j, err := Open(Config{Dir: dir, Log: quiet(), Key: key})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := Sealed(dir); err != nil || got != (key != nil) {
			t.Errorf("%s: sealed %v, %v", name, got, err)
		}
	}
}

// TestHeaderLength checks that a batch cannot be longer than those that are written: the size
// of a value would not fit into an int of 32 bits.
func TestHeaderLength(t *testing.T) {
	for length, want := range map[uint32]bool{0: true, MaxBatch: true, maxLength: true, maxLength + 1: false, 1 << 31: false, 1<<32 - 1: false} {
		h := header{identity: identity{version: version, file: 1}, records: 1, seq: 1, length: length}
		var raw [headerSize]byte
		h.put(raw[:])
		r := replayer{w: window{f: bytes.NewReader(raw[:]), size: headerSize, buf: make([]byte, headerSize)}}
		if _, ok, err := r.header(0); ok != want || err != nil {
			t.Errorf("length %d: a header: %t, %v; want %t", length, ok, err, want)
		}
	}
}

// FuzzHeader checks that a parsed header is encoded to the same bytes.
func FuzzHeader(f *testing.F) {
	for _, h := range []header{{identity: identity{version: version, file: 1, key: 2}, records: 1, seq: 1, time: -1, length: 7, sum: 9}, {}} {
		var raw [headerSize]byte
		h.put(raw[:])
		f.Add(raw[:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < headerSize {
			return
		}
		h, ok := parseHeader(data)
		if !ok {
			return
		}
		var raw [headerSize]byte
		h.put(raw[:])
		if string(raw[:]) != string(data[:headerSize]) {
			t.Fatalf("%x was read as %+v", data[:headerSize], h)
		}
	})
}
