package preflight

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

const mebibyte = 1 << 20

// directories returns the facts of the directories that the node writes to.
func (t tree) directories(o *Options) []Directory {
	out := []Directory{
		{ID: "pods", Path: o.RootDir, Needs: 50 * mebibyte},
		{ID: "images", Path: "/var/lib/containerd", Needs: 50 * mebibyte},
		// Logs are often in memory, on a small file system of their own.
		{ID: "logs", Path: o.LogDir, Needs: 10 * mebibyte},
		{ID: "run", Path: o.RunDir, Needs: mebibyte},
	}
	for i := range out {
		t.measure(&out[i])
	}
	return out
}

// measure sets the facts of a directory. It writes nothing: access(2) also detects
// read-only file systems.
func (t tree) measure(d *Directory) {
	d.ExistingPath = d.Path
	for !t.exists(d.ExistingPath) && d.ExistingPath != "/" && d.ExistingPath != "." {
		d.ExistingPath = filepath.Dir(d.ExistingPath)
	}
	real := t.path(d.ExistingPath)
	d.Writable = unix.Access(real, unix.W_OK) == nil
	var s unix.Statfs_t
	if err := unix.Statfs(real, &s); err != nil {
		return
	}
	block := uint64(max(s.Bsize, 0))
	d.Total, d.Free = s.Blocks*block, s.Bavail*block
	d.Inodes, d.InodesFree = s.Files, s.Ffree
}
