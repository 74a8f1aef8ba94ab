// Package cpio writes archives in the "newc" cpio format, which the Linux
// kernel unpacks as its initial file system (Documentation/driver-api/early-
// userspace/buffer-format.rst in the kernel sources). All entries belong to
// root and carry no time, so equal content makes equal archives.
package cpio

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"
)

// File type bits of an entry's mode.
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

const trailer = "TRAILER!!!"

// Writer writes one archive. Missing parent folders are added. It is not safe
// for concurrent use.
type Writer struct {
	w     io.Writer
	inode uint32
	off   int64
	dirs  map[string]bool
	err   error
}

// NewWriter returns a Writer on w. Close must be called to end the archive.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, dirs: map[string]bool{"": true}}
}

// Dir adds a folder.
func (w *Writer) Dir(name string, perm uint32) error {
	name, err := clean(name)
	if err != nil {
		return err
	}
	if w.dirs[name] {
		return nil
	}
	if err := w.parents(name); err != nil {
		return err
	}
	w.dirs[name] = true
	return w.entry(name, typeDir|perm&0o7777, nil)
}

// File adds a regular file of less than 4 GiB.
func (w *Writer) File(name string, perm uint32, data []byte) error {
	name, err := clean(name)
	if err != nil {
		return err
	}
	if err := w.parents(name); err != nil {
		return err
	}
	return w.entry(name, typeFile|perm&0o7777, data)
}

// Symlink adds a symbolic link to target.
func (w *Writer) Symlink(name, target string) error {
	name, err := clean(name)
	if err != nil {
		return err
	}
	if err := w.parents(name); err != nil {
		return err
	}
	return w.entry(name, typeLink|0o777, []byte(target))
}

// Close ends the archive, padded to 512 bytes, so that another one may follow.
// It does not close the underlying writer.
func (w *Writer) Close() error {
	w.inode = 0
	if err := w.entry(trailer, 0, nil); err != nil {
		return err
	}
	w.pad(512)
	return w.err
}

func clean(name string) (string, error) {
	n := strings.TrimPrefix(path.Clean("/"+name), "/")
	if n == "" || n == trailer || strings.ContainsRune(n, 0) {
		return "", fmt.Errorf("cpio entry named %q", name)
	}
	return n, nil
}

func (w *Writer) parents(name string) error {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	return w.Dir(dir, 0o755)
}

func (w *Writer) entry(name string, mode uint32, data []byte) error {
	if uint64(len(data)) > math.MaxUint32 {
		return errors.New("cpio entry of 4 GiB or more: " + name)
	}
	links := 1
	if mode&typeDir != 0 && mode&typeFile == 0 {
		links = 2
	}
	if name != trailer {
		w.inode++
	}
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor,
	// rdevmajor, rdevminor, namesize, check
	w.print(fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		w.inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name)+1, 0))
	w.print(name + "\x00")
	w.pad(4)
	w.bytes(data)
	w.pad(4)
	if w.err != nil {
		return fmt.Errorf("write cpio entry %q: %w", name, w.err)
	}
	return nil
}

func (w *Writer) print(s string) { w.bytes([]byte(s)) }

func (w *Writer) pad(to int64) {
	if n := (to - w.off%to) % to; n > 0 {
		w.bytes(make([]byte, n))
	}
}

func (w *Writer) bytes(b []byte) {
	if w.err != nil {
		return
	}
	var n int
	n, w.err = w.w.Write(b)
	w.off += int64(n)
}
