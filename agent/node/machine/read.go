package machine

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// storage returns the size in bytes of the file system that holds dir, or its
// nearest existing parent. It returns 0 if that cannot be read.
func storage(dir string) int64 {
	if dir == "" {
		return 0
	}
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		if err == nil {
			return int64(fs.Blocks) * int64(fs.Bsize)
		}
		above := filepath.Dir(dir)
		if err != unix.ENOENT || above == dir {
			return 0
		}
		dir = above
	}
}

// hugePages returns the allocated huge pages by size, in bytes
// (Documentation/admin-guide/mm/hugetlbpage.rst of Linux). A size without pages is
// listed with zero.
func hugePages(r Roots) v1.ResourceList {
	list := v1.ResourceList{}
	folder := filepath.Join(r.sys(), "kernel/mm/hugepages")
	entries, _ := os.ReadDir(folder) // a kernel without huge pages has none
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), "hugepages-")
		text, ok2 := strings.CutSuffix(text, "kB")
		kb, err := strconv.ParseInt(text, 10, 64)
		if !ok || !ok2 || err != nil || kb <= 0 || kb >= 1<<40 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, e.Name(), "nr_hugepages"))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
		if err != nil || n < 0 || n > 1<<62/(kb<<10) {
			continue
		}
		size := resource.NewQuantity(kb<<10, resource.BinarySI)
		list[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(n*(kb<<10), resource.BinarySI)
	}
	return list
}

// maxSmall bounds the size of a file that readSmall reads, in bytes.
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
