package source

import (
	"slices"
	"strings"

	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// newWatch returns a Watch of the path. It ignores names with one leading dot: editors and
// copy tools use them for temporary files.
func (f *File) newWatch() *filewatch.Watch {
	w := filewatch.New(filewatch.Config{
		Events: filewatch.Writes | filewatch.Attributes, Names: true,
		Ignore: func(name string) bool { return strings.HasPrefix(name, ".") && !isVolumeData(name) },
	})
	f.links = nil
	f.place(w)
	return w
}

// isVolumeData reports whether a name belongs to the directories that the atomic
// writer of a volume swaps.
func isVolumeData(name string) bool { return strings.HasPrefix(name, "..") }

// place watches the path and the files behind symbolic links.
func (f *File) place(w *filewatch.Watch) {
	_, err := w.Set(append([]string{f.path}, f.links...)...)
	f.setWatchError(err)
}

// follow watches the files behind symbolic links. Each file is read after that, so no change is
// missed.
func (f *File) follow(w *filewatch.Watch, links []string) {
	slices.Sort(links)
	if !slices.Equal(links, f.links) {
		f.links = links
		f.place(w)
	}
}

// setWatchError stores why changes may be missed, and logs a new error.
func (f *File) setWatchError(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != f.watchError {
		f.log.Warn("fall back to polling manifests", "path", f.path, "error", err)
	}
	f.watchError = text
}
