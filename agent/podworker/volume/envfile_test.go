package volume

import (
	"bytes"
	"path/filepath"
	"testing"
)

// A container can make the file with variables for later containers as large as
// it likes. A file larger than the limit is rejected, and not read in full.
func TestEnvFileIsBounded(t *testing.T) {
	root := t.TempDir()
	p := podWith("u", empty("a"))
	path := setUp(t, root, p, Input{}).Paths["a"]
	for size, ok := range map[int]bool{maxEnvFile: true, maxEnvFile + 1: false, 8 << 20: false} {
		put(t, filepath.Join(path, "env"), string(bytes.Repeat([]byte("x"), size)))
		data, err := New(root).ReadEnvFile(p, "a", "env")
		if ok && (err != nil || len(data) != size) || !ok && (err == nil || len(data) > maxEnvFile+1) {
			t.Errorf("%d bytes: read %d, %v", size, len(data), err)
		}
	}
}
