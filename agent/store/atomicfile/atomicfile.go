// Package atomicfile replaces files so that a power cut or a full disk leaves the old content or
// the new one.
//
// github.com/google/renameio and github.com/moby/sys/atomicwriter do not sync the directory after
// the rename, so a power cut can undo a replacement that was reported as done. Their temporary
// files have random names, so each crash can leave another one.
package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Suffix is appended to the path of a file for its temporary file.
const Suffix = ".new"

// Write replaces the file at path by one with the data and the mode, whatever the umask, and syncs
// the file and its directory. It creates missing directories with mode 0755. A crash leaves at most
// the temporary file, which the next Write of that path removes. There must be one writer of a path
// at a time. After an error the old file is still there, or, if only the sync of the directory
// failed, the new one.
func Write(path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temporary := path + Suffix
	err := Create(temporary, data, mode)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, Remove(temporary))
	}
	return SyncDir(dir)
}

// WriteIfChanged is Write unless path is a regular file with that data, of any mode.
func WriteIfChanged(path string, data []byte, mode fs.FileMode) error {
	if have, err := Read(path, int64(len(data))+1); err == nil && bytes.Equal(have, data) {
		return nil
	}
	return Write(path, data, mode)
}

// Create creates a file with the data and the mode, whatever the umask, in place of a former one,
// and syncs it. It is not atomic, and does not follow symbolic links.
func Create(path string, data []byte, mode fs.FileMode) error {
	if err := Remove(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm()&0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Remove removes a file or an empty directory. A missing one is no error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MkdirAll creates a directory and its missing parents, and syncs each to the disk. It does not
// change directories that exist.
func MkdirAll(path string, mode fs.FileMode) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(path)
	if err := MkdirAll(above, mode); err != nil {
		return err
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(above)
}

// SyncDir syncs a directory, so that the files that were created, renamed or removed in it are
// persistent.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
