package userns

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

const (
	fileName = "userns"
	tmpName  = ".userns.tmp"
	// maxFile is the maximum size of a pod's file in bytes; valid files have about 140.
	maxFile = 4 << 10
	// modeDir is the mode of a pod's directory.
	modeDir fs.FileMode = 0o750
)

// checkUID rejects a UID that is not the name of a subdirectory.
func checkUID(uid types.UID) error {
	s := string(uid)
	if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return errors.New("UID is not a valid directory name")
	}
	return nil
}

// read reads a pod's file; ok reports whether it exists. err is an I/O error; a
// defect of the content is in rec.err.
func (a *Allocator) read(uid types.UID) (rec record, ok bool, err error) {
	data, err := a.readFile(uid)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, err
	}
	rec.spans, err = decode(data, a.cfg.PerPod)
	if err == nil {
		err = a.validateSpan(rec.spans[0])
	}
	if err != nil {
		rec.err = fmt.Errorf("%w: file %s: %w", ErrDamaged, fileName, err)
	}
	return rec, true, nil
}

// validateSpan returns an error if the span is not one that this allocator could have
// assigned.
func (a *Allocator) validateSpan(s span) error {
	c := &a.cfg
	if s.length != c.PerPod || s.first%c.PerPod != 0 ||
		s.first < c.First || uint64(s.first)+uint64(s.length) > uint64(c.First)+uint64(c.Length) {
		return fmt.Errorf("IDs %d to %d are not one of this node's ranges of %d IDs from %d on",
			s.first, uint64(s.first)+uint64(s.length)-1, c.PerPod, c.First)
	}
	return nil
}

func (a *Allocator) readFile(uid types.UID) ([]byte, error) {
	root, err := os.OpenRoot(a.cfg.PodsDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(string(uid)+"/"+fileName, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// A larger file is truncated, and so invalid.
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// write writes a pod's file and flushes it to disk. After an error the old file, the new
// one or none may exist.
func (a *Allocator) write(uid types.UID, s span) error {
	data, err := encode(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.cfg.PodsDir, modeDir); err != nil {
		return err
	}
	pods, err := os.OpenRoot(a.cfg.PodsDir)
	if err != nil {
		return err
	}
	defer pods.Close()
	switch err := pods.Mkdir(string(uid), modeDir); {
	case err == nil:
		if err := syncDir(pods); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	dir, err := pods.OpenRoot(string(uid))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := writeSynced(dir, data); err != nil {
		return err
	}
	if err := dir.Rename(tmpName, fileName); err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(dir *os.Root, data []byte) error {
	// A killed agent may have left the temporary file.
	if err := dir.Remove(tmpName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := dir.OpenFile(tmpName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// remove removes a pod's file and flushes the removal to disk: a file that reappeared
// after a power cut could claim IDs that another pod has by then.
func (a *Allocator) remove(uid types.UID) error {
	err := a.removeSynced(uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (a *Allocator) removeSynced(uid types.UID) error {
	pods, err := os.OpenRoot(a.cfg.PodsDir)
	if err != nil {
		return err
	}
	defer pods.Close()
	dir, err := pods.OpenRoot(string(uid))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Remove(fileName); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
