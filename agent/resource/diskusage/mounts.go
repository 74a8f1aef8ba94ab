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

// mount is a mounted file system.
type mount struct {
	path string
	// local means that the file system is on a device or in the memory of this
	// machine, and depends on no server.
	local bool
}

// mounts is the mount table of this process.
type mounts struct {
	sorted []mount // by path, without duplicates
	// uppers maps container IDs to the upper directories of their writable layers.
	uppers map[string]string
}

// localTypes are the file system types that depend on no server. Other types, also
// those on top of another file system such as overlay, may not respond.
var localTypes = map[string]bool{
	"ext2": true, "ext3": true, "ext4": true, "xfs": true, "btrfs": true, "f2fs": true, "bcachefs": true, "zfs": true,
	"vfat": true, "exfat": true, "ntfs3": true, "ubifs": true, "jffs2": true, "nilfs2": true, "squashfs": true, "erofs": true, "iso9660": true,
	"tmpfs": true, "ramfs": true, "hugetlbfs": true, "devtmpfs": true, "rootfs": true,
}

// maxMountLine is the maximum length of a line of the mount table that is parsed
// completely; an overlay of many layers has some kilobytes. Longer lines are cut.
const maxMountLine = 256 << 10

// readMounts reads a file in the format of /proc/self/mountinfo
// (proc_pid_mountinfo(5)). It reads line by line, because the file has hundreds of
// kilobytes on a full node.
func readMounts(path string) (*mounts, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
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
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	// The last of several mounts on one path is the visible one.
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

// shortLines splits lines, and cuts lines that exceed the buffer, so that a long line
// does not end the reading.
func shortLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if len(data) >= maxMountLine-1 || atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// add parses one line: the fifth field is the mount point; type, source and options
// of the file system follow a separate dash. Lines of another form are skipped.
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

// field returns the nth field of a line, counted from 0.
func field(line []byte, n int) []byte {
	for f := range bytes.FieldsSeq(line) {
		if n == 0 {
			return f
		}
		n--
	}
	return nil
}

// unescape decodes the kernel's octal escapes, such as \040 for a space.
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

// find returns the index of a path in the table, and whether it is a mount point.
func (m *mounts) find(path string) (int, bool) {
	return slices.BinarySearchFunc(m.sorted, path, func(a mount, b string) int { return strings.Compare(a.path, b) })
}

// of returns the mount that a path is on.
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

// below reports whether there are mounts below a path.
func (m *mounts) below(path string) bool {
	inside := strings.TrimSuffix(path, "/") + "/"
	i, _ := m.find(inside)
	return i < len(m.sorted) && strings.HasPrefix(m.sorted[i].path, inside)
}

// upper returns the place of a container's writable layer, if the runtime has mounted
// one. The runtime owns the path down to the parent directory of the layer.
func (m *mounts) upper(containerID string) (Place, bool) {
	path, ok := m.uppers[containerID]
	if !ok || containerID == "" || !filepath.IsAbs(path) {
		return Place{}, false
	}
	return Place{Root: filepath.Dir(path), Path: filepath.Base(path)}, true
}
