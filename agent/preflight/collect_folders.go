package preflight

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

const mebibyte = 1 << 20

// folders checks the folders that the node writes to.
func (t tree) folders(o *Options) []Folder {
	out := []Folder{
		{ID: "pods", Path: o.RootDir, Needs: 50 * mebibyte},
		{ID: "images", Path: o.ImageDir, Needs: 50 * mebibyte},
		// Logs are often in memory, on a small file system of their own.
		{ID: "logs", Path: o.LogDir, Needs: 10 * mebibyte},
		{ID: "run", Path: o.RunDir, Needs: mebibyte},
	}
	for i := range out {
		t.measure(&out[i])
	}
	return out
}

// measure sets the facts of a folder. It writes nothing: access(2) also detects
// read-only file systems.
func (t tree) measure(f *Folder) {
	f.ExistingPath = f.Path
	for !t.exists(f.ExistingPath) && f.ExistingPath != "/" && f.ExistingPath != "." {
		f.ExistingPath = filepath.Dir(f.ExistingPath)
	}
	real := t.path(f.ExistingPath)
	f.Writable = unix.Access(real, unix.W_OK) == nil
	var s unix.Statfs_t
	if err := unix.Statfs(real, &s); err != nil {
		return
	}
	block := uint64(max(s.Bsize, 0))
	f.Total, f.Free = s.Blocks*block, s.Bavail*block
	f.Inodes, f.InodesFree = s.Files, s.Ffree
}
