package source

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/manifest"
	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// result is the outcome of one scan of all files.
type result struct {
	changed   bool // the set of pods changed
	unsettled bool // a file is being written
	retry     bool // a file could not be read, but may be readable later
	failed    bool // the path could not be read
	watched   bool // inotify reports all changes
}

// scan scans all files once. It allocates nothing if nothing changed.
func (f *File) scan(w *filewatch.Watch) result {
	f.scans++
	changes, err := w.Take()
	f.setWatchError(err)
	root, err := f.cpath.Stat()
	gone := errors.Is(err, unix.ENOENT)
	if err != nil && !gone {
		f.reportRootError(fmt.Errorf("stat %s: %w", f.path, err))
		return result{failed: true}
	}
	if !root.SameFile(&f.root) {
		f.place(w) // mounts cause no event
	}
	f.mark(changes)
	relist := f.relist || changes.Any || f.watchError != "" || root != f.root || f.rootErr != ""
	if relist && !gone {
		if err := f.list(root, w); err != nil {
			f.reportRootError(err)
			return result{failed: true, watched: f.watchError == ""}
		}
	}
	r := result{watched: f.watchError == ""}
	f.root, f.rootErr = root, ""
	for _, e := range f.entries {
		if gone || (relist && e.listed != f.scans) {
			continue
		}
		e.listed = f.scans
		f.checkFile(e, &r)
	}
	f.forget(&r)
	f.relist = r.unsettled
	return r
}

// reportRootError reports that the path cannot be read, once for each error text.
func (f *File) reportRootError(err error) {
	if text := err.Error(); text != f.rootErr {
		f.rootErr = text
		f.events.Warning(pod.Ref{}, ReasonUnreadableManifest, text+"; keeping its pods")
	}
}

// mark marks the files for which inotify reported a change. A change of volume data marks all.
func (f *File) mark(changes filewatch.Changes) {
	if !changes.Any {
		return
	}
	for name := range changes.Names {
		changes.All = changes.All || isVolumeData(filepath.Base(name))
	}
	for _, e := range f.entries {
		if _, named := changes.Names[e.path]; named || changes.All {
			e.touched = true
		}
	}
}

// list updates the entries to the current content of the directory.
func (f *File) list(root filewatch.Signature, w *filewatch.Watch) error {
	switch {
	case root.IsRegular():
		f.found(filepath.Base(f.path), f.path)
		f.follow(w, nil)
		return nil
	case !root.IsDir():
		return fmt.Errorf("read %s: neither a directory nor a regular file", f.path)
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fmt.Errorf("list %s: %w", f.path, bare(err))
	}
	var links []string
	for _, d := range entries {
		if strings.HasPrefix(d.Name(), ".") {
			continue
		}
		path := filepath.Join(f.path, d.Name())
		f.found(d.Name(), path)
		if d.Type()&fs.ModeSymlink != 0 && leadsToFile(path) {
			links = append(links, path)
		}
	}
	f.follow(w, links)
	return nil
}

// leadsToFile reports whether a symbolic link leads to a regular file. No manifest
// needs a watch on /dev.
func leadsToFile(link string) bool {
	info, err := os.Stat(link)
	return err == nil && info.Mode().IsRegular()
}

func (f *File) found(name, path string) {
	e := f.byName[name]
	if e == nil {
		e = &entry{name: name, path: path, cpath: filewatch.NewPath(path)}
		f.byName[name] = e
		f.entries = append(f.entries, e)
	}
	e.listed = f.scans
	e.missing = false
}

// forget drops the entries that two scans in a row did not find. When an editor
// saves a file, the file is missing for a moment.
func (f *File) forget(r *result) {
	f.entries = slices.DeleteFunc(f.entries, func(e *entry) bool {
		switch {
		case e.listed == f.scans:
			return false
		case !e.missing:
			e.missing = true
			r.unsettled = true
			return false
		}
		if len(e.pods) > 0 {
			r.changed = true
		}
		delete(f.byName, e.name)
		return true
	})
}

// checkFile reads one file if it is new or changed, and settled.
func (f *File) checkFile(e *entry, r *result) {
	sig, err := e.cpath.Stat()
	if err != nil {
		e.pending = true
		if errors.Is(err, unix.ENOENT) && !e.vanished {
			// It was deleted after the directory was listed, or it is a dangling
			// link. The next scan distinguishes them.
			e.vanished = true
			r.unsettled = true
			return
		}
		f.reportError(e, err)
		r.retry = true
		return
	}
	e.vanished = false
	switch {
	case sig.IsDir():
		f.skipFolder(e, sig, r)
		return
	case !sig.IsRegular():
		e.sig, e.whole = sig, true
		f.reportError(e, errors.New("not a regular file"))
		return
	}
	calm := !f.sent && f.scans == 1 && f.started.Sub(sig.Modified()) > settledAge
	read, unsettled := e.next(sig, calm)
	r.unsettled = r.unsettled || unsettled
	if read {
		f.read(e, r)
	}
}

// skipFolder skips a subdirectory. If it replaced a file, the file's pods are
// removed.
func (f *File) skipFolder(e *entry, sig filewatch.Signature, r *result) {
	if !e.sig.IsDir() {
		f.log.Info("skip subdirectory of static pod path", "path", e.path)
	}
	e.sig, e.whole = sig, true
	if len(e.pods) > 0 {
		e.pods, e.parsed = nil, false
		r.changed = true
	}
}

// read parses one settled file and updates its pods.
func (f *File) read(e *entry, r *result) {
	data, err := e.read()
	switch {
	case errors.Is(err, errChanged):
		e.touched = true
		r.unsettled = true
		return
	case errors.Is(err, errTooLarge):
		e.pending = false
		f.reportError(e, err)
		return
	case err != nil:
		f.reportError(e, err)
		r.retry = true
		return
	}
	e.pending = false
	sum := sha256.Sum256(data)
	if e.parsed && sum == e.sum {
		e.lastError = ""
		return
	}
	origin := f.origin
	origin.Location = e.path
	m := manifest.Parse(data, origin)
	if !m.Complete() && e.doubt() {
		r.unsettled = true
		return
	}
	e.lastError = ""
	e.sum, e.parsed = sum, true
	e.whole = e.whole || m.Complete()
	reportProblems(f.events, e.path, m.Problems)
	pods := merge(e.pods, m)
	if !slices.Equal(pods, e.pods) {
		e.pods = pods
		r.changed = true
	}
}

// reportError reports that a file cannot be read, once for each error text. The file keeps its
// pods.
func (f *File) reportError(e *entry, err error) {
	if text := bare(err).Error(); text != e.lastError {
		e.lastError = text
		f.events.Warning(e.ref(), ReasonUnreadableManifest, fmt.Sprintf("%s: %s", e.path, text))
	}
}

// bare returns an error without its path, which the message already contains.
func bare(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
