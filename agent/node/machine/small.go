package machine

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxSmall bounds what is read of a file, in bytes.
const maxSmall = 16 << 10

// readSmall is a small file's text, or "" for what is none: missing, not
// readable, too large, or no regular file. It does not wait for a writer
// where a pipe stands in the file's place.
func readSmall(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err != nil || len(data) > maxSmall {
		return ""
	}
	return string(data)
}
