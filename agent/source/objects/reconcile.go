package objects

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/store/filewatch"
	"github.com/tinylet/tinylet/agent/store/secretfile"
	"github.com/tinylet/tinylet/agent/wait"
)

// maxFiles bounds the files of a directory.
const maxFiles = 4096

// file is one file of the directory.
type file struct {
	sig       filewatch.Signature // of the content that objects came from, or of bad content
	done      bool                // the content of sig was read
	objects   map[Key]Object
	lastError string    // last reported error
	double    string    // last reported duplicate of an object in another file
	exposed   bool      // it has Secrets that other users can read: they are withheld
	missing   time.Time // when it was first not found
	seen      bool      // found by the current scan
}

// scan updates the objects to the current content of the files. It reports
// whether another scan is needed soon. The caller holds the lock.
func (f *Folder) scan() (unsettled bool) {
	names, folder, err := f.list()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.failed = err
		f.reportDirectory(err.Error() + "; keeping its objects")
		return false
	}
	f.failed = nil
	if len(names) > maxFiles {
		f.reportDirectory(fmt.Sprintf("%s has more than %d files: ignoring the rest", f.config.Path, maxFiles))
		names = names[:maxFiles]
	} else {
		f.lastProblem = ""
	}
	news := false
	for _, name := range names {
		e := f.files[name]
		if e == nil {
			e = &file{}
			f.files[name] = e
		}
		e.seen, e.missing = true, time.Time{}
		changed, wait := f.checkFile(folder, name, e)
		news, unsettled = news || changed, unsettled || wait
	}
	gone, wait := f.forget()
	if folder != nil {
		_ = folder.Close()
	}
	if news || gone {
		f.merge()
	}
	f.scanned = true
	return unsettled || wait
}

// list opens the directory and returns the sorted names of the files that
// count.
func (f *Folder) list() ([]string, *os.Root, error) {
	folder, err := os.OpenRoot(f.config.Path)
	if err != nil {
		return nil, nil, fmt.Errorf("open directory %s: %w", f.config.Path, bare(err))
	}
	entries, err := fs.ReadDir(folder.FS(), ".") // sorted by name
	if err != nil {
		_ = folder.Close()
		return nil, nil, fmt.Errorf("list directory %s: %w", f.config.Path, bare(err))
	}
	var names []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	return names, folder, nil
}

func (f *Folder) reportDirectory(message string) {
	if message != f.lastProblem {
		f.lastProblem = message
		f.report(message)
	}
}

// checkFile reads one file if it is new or changed, and settled.
func (f *Folder) checkFile(folder *os.Root, name string, e *file) (changed, unsettled bool) {
	sig, data, err := f.read(folder, name, e)
	switch {
	case errors.Is(err, errUnchanged):
		return f.checkMode(folder, name, e), false // the directory's mode may have changed
	case errors.Is(err, errSkipped):
		changed = len(e.objects) > 0
		e.objects, e.done = nil, false
		return changed, false
	case errors.Is(err, errUnsettled):
		return false, true
	case err != nil:
		e.done = false // it may be readable later
		f.reportError(name, e, err)
		return false, false
	}
	d, err := decode(data)
	if err != nil {
		if age := f.now().Sub(sig.Modified()); age >= 0 && age < doubtTime {
			return false, true
		}
		e.sig, e.done = sig, true
		f.reportError(name, e, fmt.Errorf("%w; keeping its previous objects", err))
		return false, false
	}
	e.sig, e.done, e.lastError, e.objects = sig, true, "", d.objects
	for _, warning := range d.warnings {
		f.report(filepath.Join(f.config.Path, name) + ": " + warning)
	}
	f.checkMode(folder, name, e)
	return true, false
}

// checkMode withholds the file's Secrets if users other than its owner can read
// them, and emits a message once. It reports whether that changed.
func (f *Folder) checkMode(folder *os.Root, name string, e *file) (changed bool) {
	info, err := folder.Stat(".")
	reached := err == nil && secretfile.ExposedIn(info.Mode(), fs.FileMode(e.sig.Mode))
	secret := false
	for k := range e.objects {
		secret = secret || k.Kind == KindSecret
	}
	was := e.exposed
	e.exposed = reached && secret
	if e.exposed && !was {
		f.report(filepath.Join(f.config.Path, name) + ": ignoring its Secrets: users other than its owner can read the file; chmod 600 it")
	}
	return e.exposed != was
}

// reportError reports that a file cannot be used, once for each error text. The file keeps its
// objects.
func (f *Folder) reportError(name string, e *file, err error) {
	if text := bare(err).Error(); text != e.lastError {
		e.lastError = text
		f.report(filepath.Join(f.config.Path, name) + ": " + text)
	}
}

// forget drops the files that have been missing for settleTime/2. When an editor
// saves a file, the file is missing for a moment.
func (f *Folder) forget() (gone, unsettled bool) {
	now := f.now()
	for name, e := range f.files {
		switch {
		case e.seen:
			e.seen = false
		case e.missing.IsZero():
			e.missing = now
			unsettled = true
		case now.Sub(e.missing) < settleTime/2 && !now.Before(e.missing):
			unsettled = true
		default:
			delete(f.files, name)
			gone = true
		}
	}
	return gone, unsettled
}

// merge merges the objects of all files. Of two files, the one with the lower name wins.
func (f *Folder) merge() {
	all := make(map[Key]Object)
	f.withheld = make(map[Key]string)
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		e, double := f.files[name], ""
		for k, o := range e.objects {
			if e.exposed && k.Kind == KindSecret {
				f.withheld[k] = name
				continue
			}
			if _, taken := all[k]; !taken {
				all[k] = o
			} else if text := k.String(); double == "" || text < double {
				double = text
			}
		}
		if double != "" && double != e.double {
			f.report(fmt.Sprintf("%s: ignoring %s: a file with a lower name defines it too", filepath.Join(f.config.Path, name), double))
		}
		e.double = double
	}
	f.setObjects(all)
}

// setObjects sets the objects and records which of them changed.
func (f *Folder) setObjects(all map[Key]Object) {
	old := f.objects
	f.objects = all
	if !f.scanned {
		return
	}
	before := len(f.changed)
	for k, o := range all {
		if was, ok := old[k]; !ok || !Same(was, o) {
			f.changed = append(f.changed, k)
		}
	}
	for k := range old {
		if _, ok := all[k]; !ok {
			f.changed = append(f.changed, k)
		}
	}
	if len(f.changed) > before {
		wait.Notify(f.wake)
	}
}

// bare returns an error without its path, which the message already contains.
func bare(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
