package journal

import (
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
