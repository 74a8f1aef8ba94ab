package identity

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// disk changes files. It calls before, if set, ahead of each step; tests use it to
// stop the agent at that step. An error of before aborts the operation.
type disk struct {
	before func(step, path string) error
}

func (d disk) do(step, path string, change func() error) error {
	if d.before != nil {
		if err := d.before(step, path); err != nil {
			return err
		}
	}
	return change()
}

// replace is atomicfile.Write with the steps and another suffix. After an error the
// temporary file may remain.
func (d disk) replace(path string, data []byte, mode fs.FileMode) error {
	return d.replaceBy(path+".tmp", path, data, mode)
}

// replaceBy is replace with tmp as the temporary file. A crash leaves at most that
// one file behind.
func (d disk) replaceBy(tmp, path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := d.do("mkdir", dir, func() error { return atomicfile.MkdirAll(dir, 0o755) }); err != nil {
		return err
	}
	if err := d.do("write", tmp, func() error { return atomicfile.Create(tmp, data, mode) }); err != nil {
		return err
	}
	return d.rename(tmp, path)
}

// link atomically replaces path by a symbolic link to target, with tmp as the
// temporary link.
func (d disk) link(target, path, tmp string) error {
	if err := d.remove(tmp); err != nil {
		return err
	}
	if err := d.do("link", tmp, func() error { return os.Symlink(target, tmp) }); err != nil {
		return err
	}
	return d.rename(tmp, path)
}

// remove removes the file at path. A missing file is not an error.
func (d disk) remove(path string) error {
	return d.do("remove", path, func() error { return atomicfile.Remove(path) })
}

func (d disk) rename(from, to string) error {
	if err := d.do("rename", to, func() error { return os.Rename(from, to) }); err != nil {
		return err
	}
	return d.do("sync", to, func() error { return atomicfile.SyncDir(filepath.Dir(to)) })
}
