package diskusage

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mount is where a file system is mounted.
type mount struct {
	path string
	// local says that it is on a device of this machine or in its memory, and
	// answers without anybody else.
	local bool
}

// mounts is the mount table of this process.
type mounts struct {
	sorted []mount // by path, each once
	// uppers are the writable layers of containers, by their IDs.
	uppers map[string]string
}

// localTypes are the file systems that ask nobody. Others, also those that may
// lie on another such as overlay, are not trusted to answer.
var localTypes = map[string]bool{
	"ext2": true, "ext3": true, "ext4": true, "xfs": true, "btrfs": true, "f2fs": true, "bcachefs": true, "zfs": true,
	"vfat": true, "exfat": true, "ntfs3": true, "ubifs": true, "jffs2": true, "nilfs2": true, "squashfs": true, "erofs": true, "iso9660": true,
	"tmpfs": true, "ramfs": true, "hugetlbfs": true, "devtmpfs": true, "rootfs": true,
}

// maxMountLine bounds a line of the mount table; an overlay of many layers has
// some kilobytes. Longer ones are passed over.
const maxMountLine = 256 << 10

// readMounts reads a file like /proc/self/mountinfo (proc_pid_mountinfo(5)),
// line by line: it is hundreds of kilobytes on a full node.
func readMounts(path string) (*mounts, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	defer f.Close()
	all := &mounts{uppers: map[string]string{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 16<<10), maxMountLine)
	lines.Split(shortLines)
	for lines.Scan() {
		all.add(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	// Of mounts over each other the last is seen.
	slices.SortStableFunc(all.sorted, func(a, b mount) int { return strings.Compare(a.path, b.path) })
	last := all.sorted[:0]
	for i, m := range all.sorted {
		if i+1 == len(all.sorted) || all.sorted[i+1].path != m.path {
			last = append(last, m)
		}
	}
	all.sorted = last
	return all, nil
}

// shortLines splits lines, and cuts those that are too long for the buffer, so
// that one such line does not end the reading.
func shortLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if len(data) >= maxMountLine-1 || atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// add takes one line: the fifth field is the mount point; after a lone dash
// come the type, the source and the options of the file system. Lines of
// another form are left out.
func (m *mounts) add(line []byte) {
	before, after, ok := bytes.Cut(line, []byte(" - "))
	if !ok {
		return
	}
	path := field(before, 4)
	fstype := field(after, 0)
	if len(path) == 0 || path[0] != '/' || len(fstype) == 0 {
		return
	}
	point := mount{path: unescape(path), local: localTypes[string(fstype)]}
	m.sorted = append(m.sorted, point)
	if string(fstype) != "overlay" || filepath.Base(point.path) != "rootfs" {
		return
	}
	for option := range bytes.SplitSeq(field(after, 2), []byte(",")) {
		if upper, ok := bytes.CutPrefix(option, []byte("upperdir=")); ok {
			m.uppers[filepath.Base(filepath.Dir(point.path))] = unescape(upper)
		}
	}
}

// field is the nth field of a line, from 0.
func field(line []byte, n int) []byte {
	for f := range bytes.FieldsSeq(line) {
		if n == 0 {
			return f
		}
		n--
	}
	return nil
}

// unescape undoes the kernel's octal escapes, such as \040 for a space.
func unescape(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		if len(text) > 3 && text[0] == '\\' && text[1]-'0' < 4 && text[2]-'0' < 8 && text[3]-'0' < 8 {
			out = append(out, (text[1]-'0')<<6|(text[2]-'0')<<3|(text[3]-'0'))
			text = text[4:]
			continue
		}
		out, text = append(out, text[0]), text[1:]
	}
	return string(out)
}

// find is the place of a path in the table, and whether it is mounted there.
func (m *mounts) find(path string) (int, bool) {
	return slices.BinarySearchFunc(m.sorted, path, func(a mount, b string) int { return strings.Compare(a.path, b) })
}

// of is the mount that a path is on.
func (m *mounts) of(path string) (mount, bool) {
	for {
		if i, ok := m.find(path); ok {
			return m.sorted[i], true
		}
		if path == "/" || path == "." {
			return mount{}, false
		}
		path = filepath.Dir(path)
	}
}

// below says whether something is mounted below a path.
func (m *mounts) below(path string) bool {
	inside := strings.TrimSuffix(path, "/") + "/"
	i, _ := m.find(inside)
	return i < len(m.sorted) && strings.HasPrefix(m.sorted[i].path, inside)
}

// upper is the place of a container's writable layer, where the runtime has
// mounted one. As far as the directory that it is in, the runtime owns it.
func (m *mounts) upper(containerID string) (Place, bool) {
	path, ok := m.uppers[containerID]
	if !ok || containerID == "" || !filepath.IsAbs(path) {
		return Place{}, false
	}
	return Place{Root: filepath.Dir(path), Path: filepath.Base(path)}, true
}
