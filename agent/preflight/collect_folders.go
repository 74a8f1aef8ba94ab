package preflight

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

const mebibyte = 1 << 20

// folders looks at the places that the node writes to.
func (t tree) folders(o *Options) []Folder {
	out := []Folder{
		{ID: "pods", Path: o.RootDir, Needs: 50 * mebibyte},
		{ID: "images", Path: o.ImageDir, Needs: 50 * mebibyte},
		// Logs often are in memory, in a small file system of their own.
		{ID: "logs", Path: o.LogDir, Needs: 10 * mebibyte},
		{ID: "run", Path: o.RunDir, Needs: mebibyte},
	}
	for i := range out {
		t.measure(&out[i])
	}
	return out
}

// measure fills in a folder's facts. Nothing is written: access(2) tells of
// read-only file systems too.
func (t tree) measure(f *Folder) {
	f.Exists = f.Path
	for !t.exists(f.Exists) && f.Exists != "/" && f.Exists != "." {
		f.Exists = filepath.Dir(f.Exists)
	}
	real := t.path(f.Exists)
	f.Writable = unix.Access(real, unix.W_OK) == nil
	var s unix.Statfs_t
	if err := unix.Statfs(real, &s); err != nil {
		return
	}
	block := uint64(max(s.Bsize, 0))
	f.Total, f.Free = s.Blocks*block, s.Bavail*block
	f.Inodes, f.InodesFree = s.Files, s.Ffree
}
