// Package journaltest makes journals that other versions of the agent wrote, for tests.
package journaltest

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// SetVersion sets the version of the format in the first header of the journal in a directory.
// The positions are those of the format's description, which no version may change.
func SetVersion(t testing.TB, dir string, version uint32) {
	t.Helper()
	path := filepath.Join(dir, "journal")
	b, err := os.ReadFile(path)
	if err != nil || len(b) < 60 {
		t.Fatalf("journal with %d bytes: %v", len(b), err)
	}
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint32(b[56:], crc32.Checksum(b[:56], crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
