package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

const (
	fileName = "userns"
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

func (a *Allocator) file(uid types.UID) string {
	return filepath.Join(a.cfg.PodsDir, string(uid), fileName)
}

// read reads a pod's file; ok reports whether it exists. err is an I/O error; a
// defect of the content is in rec.err.
func (a *Allocator) read(uid types.UID) (rec record, ok bool, err error) {
	data, err := atomicfile.Read(a.file(uid), maxFile) // a larger file is truncated, and so invalid
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

// write writes a pod's file and flushes it to disk. After an error the old file, the new
// one or none may exist.
func (a *Allocator) write(uid types.UID, s span) error {
	data, err := encode(s)
	if err != nil {
		return err
	}
	if err := atomicfile.MkdirAll(filepath.Dir(a.file(uid)), modeDir); err != nil {
		return err
	}
	return atomicfile.Write(a.file(uid), data, 0o600)
}

// remove removes a pod's file and flushes the removal to disk: a file that reappeared
// after a power cut could claim IDs that another pod has by then.
func (a *Allocator) remove(uid types.UID) error {
	err := os.Remove(a.file(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(a.file(uid)))
}
