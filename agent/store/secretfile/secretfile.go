// Package secretfile reads files that hold secrets, and defines their required mode: a
// file with any permission for its group or other users is rejected, as by ssh.
package secretfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrExposed means that users other than the owner may use a file.
var ErrExposed = errors.New("users other than its owner may use the file")

// Exposed reports whether a mode permits users other than the owner to use a
// file.
func Exposed(mode fs.FileMode) bool { return mode.Perm()&0o077 != 0 }

// ExposedIn is Exposed for a file in a directory: users who may not search the
// directory cannot access the file.
func ExposedIn(folder, file fs.FileMode) bool {
	reach := folder.Perm() & 0o011 // search permission of the group and of others
	return file.Perm()&(reach*7)&0o077 != 0
}

// Read returns the content of a regular file of at most max bytes that only its owner
// may use. Errors name the path. It follows symbolic links, and does not block on a FIFO.
func Read(path string, max int) ([]byte, error) { return read(path, max, false) }

// ReadAny is Read of a file of any mode.
func ReadAny(path string, max int) ([]byte, error) { return read(path, max, true) }

func read(path string, max int, exposed bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	if !exposed && Exposed(info.Mode()) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf(
			"%w (mode %04o): run chmod 600, or mount a file system without modes with umask=077", ErrExposed, info.Mode().Perm())}
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(max)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > max {
		clear(text)
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("more than %d bytes", max)}
	}
	return text, nil
}
