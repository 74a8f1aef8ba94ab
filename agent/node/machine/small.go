package machine

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxSmall bounds a file's size, in bytes.
const maxSmall = 16 << 10

// readSmall returns the text of a small file. It returns "" for a file that is
// missing, unreadable, too large or not regular. It does not block on a pipe.
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
