package volume

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// compare compares a config volume with the payload. same reports whether the
// current directory has exactly the payload's files, with their content, owner
// and mode. visible reports whether the volume's directory has a link for each of
// them and no orphaned files. A file that cannot be read makes same false. Each Setup
// calls compare, so for speed it uses file descriptors and one buffer.
func (w *writer) compare(current string, files payload) (same, visible bool) {
	base, err := w.dir.Open(".")
	if err != nil {
		return false, false
	}
	defer base.Close()
	fd := int(base.Fd())
	stamp, err := openBeneath(fd, current)
	if err != nil {
		return false, false
	}
	defer unix.Close(stamp)
	for path, want := range files {
		if !w.sameFile(stamp, path, want) {
			return false, false
		}
	}
	if n, err := w.count(stamp, 0); err != nil || n != len(files) {
		return false, false
	}
	return true, w.allVisible(fd, current, files)
}

// allVisible reports whether the volume's directory has a name for each top-level
// name of the payload, and nothing that may be an orphaned file.
func (w *writer) allVisible(dir int, current string, files payload) bool {
	missing, good := topLevelCount(files), true
	err := w.entries(dir, func(name []byte, kind byte) error {
		switch {
		case string(name) == dataLink, string(name) == current:
		case hasPath(files, name):
			missing--
		case bytes.HasPrefix(name, []byte("..")), kind == unix.DT_LNK, kind == unix.DT_UNKNOWN:
			good = false // possibly an orphaned file: clean checks it
		}
		return nil
	})
	return err == nil && good && missing == 0
}

// topLevelCount returns the number of top-level names of the files.
func topLevelCount(files payload) int {
	names := make(map[string]struct{})
	for path := range files {
		name, _, _ := strings.Cut(path, "/")
		names[name] = struct{}{}
	}
	return len(names)
}

// maxNesting is the maximum number of levels of a payload's paths.
const maxNesting = unix.PathMax / 2

// count returns the number of files in an open directory, at all levels.
func (w *writer) count(dir, level int) (int, error) {
	if level > maxNesting {
		return 0, errors.New("directory tree is too deep")
	}
	n := 0
	var below []string
	err := w.entries(dir, func(name []byte, kind byte) error {
		if kind == unix.DT_UNKNOWN { // not every file system sets the type
			kind = kindIn(dir, string(name))
		}
		switch kind {
		case unix.DT_DIR:
			below = append(below, string(name))
		case unix.DT_REG:
			n++
		default:
			return errors.New("neither a file nor a directory")
		}
		return nil
	})
	for _, name := range below {
		if err != nil {
			return 0, err
		}
		var fd, m int
		if fd, err = openBeneath(dir, name); err == nil {
			m, err = w.count(fd, level+1)
			n += m
			_ = unix.Close(fd)
		}
	}
	return n, err
}

// kindIn returns the type of a name in an open directory, or DT_UNKNOWN.
func kindIn(dir int, name string) byte {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return unix.DT_UNKNOWN
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // DT_* and S_IF* have the same numbers
}

// errEntry means that getdents64(2) returned a malformed entry.
var errEntry = errors.New("malformed directory entry")

// entries calls do with each name in an open directory and its type from
// getdents64(2), except "." and "..". The name is valid only during the call.
func (w *writer) entries(dir int, do func(name []byte, kind byte) error) error {
	for {
		n, err := unix.Getdents(dir, w.buffer)
		if err != nil || n <= 0 {
			return err
		}
		for rest := w.buffer[:n]; len(rest) > 0; {
			const header = 19 // inode, position of the next entry, length, type
			if len(rest) <= header {
				return errEntry
			}
			length := int(binary.NativeEndian.Uint16(rest[16:]))
			if length <= header || length > len(rest) {
				return errEntry
			}
			name, _, _ := bytes.Cut(rest[header:length], []byte{0})
			if s := string(name); s != "." && s != ".." {
				if err := do(name, rest[18]); err != nil {
					return err
				}
			}
			rest = rest[length:]
		}
	}
}

// sameFile reports whether a file has the wanted content, owner, group and mode.
func (w *writer) sameFile(stamp int, path string, want content) bool {
	fd, err := openat2(stamp, path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != int64(len(want.data)) || st.Mode&0o777 != uint32(w.modeOf(want).Perm()) ||
		st.Uid != uint32(max(want.user, 0)) || w.group >= 0 && st.Gid != uint32(w.group) {
		return false
	}
	return w.sameContent(fd, want.data)
}

func (w *writer) sameContent(fd int, want []byte) bool {
	for {
		n, err := unix.Read(fd, w.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil, n > len(want), !bytes.Equal(w.buffer[:n], want[:n]):
			return false
		case n == 0:
			return len(want) == 0
		}
		want = want[n:]
	}
}

// hasPath reports whether the payload has a file of this name or below it.
func hasPath(files payload, name []byte) bool {
	if _, ok := files[string(name)]; ok {
		return true
	}
	for path := range files {
		if len(path) > len(name) && path[len(name)] == '/' && path[:len(name)] == string(name) {
			return true
		}
	}
	return false
}

// isWriterLink reports whether a name is a link that the writer created.
func (w *writer) isWriterLink(name string) bool {
	target, err := w.dir.Readlink(name)
	return err == nil && target == filepath.Join(dataLink, name)
}
