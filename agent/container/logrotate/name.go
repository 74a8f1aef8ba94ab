package logrotate

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Parts of the names of rotated logs.
const (
	stampFormat = "20060102-150405"
	gzSuffix    = ".gz"
	tmpSuffix   = ".tmp"
)

// piece is a rotated log.
type piece struct {
	name       string // in its folder
	stamp      string
	compressed bool
}

// parse reads the name of a file beside the log base. temporary says that it
// is what a rotation that was killed left of a piece.
func parse(base, name string) (p piece, temporary, ok bool) {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok {
		return piece{}, false, false
	}
	rest, temporary = strings.CutSuffix(rest, tmpSuffix)
	stamp, compressed := strings.CutSuffix(rest, gzSuffix)
	// A stamp at the end of its range would leave none for the next log.
	at, err := time.Parse(stampFormat, stamp)
	if err != nil || len(stamp) != len(stampFormat) || at.Year() >= 9999 {
		return piece{}, false, false
	}
	return piece{name: name, stamp: stamp, compressed: compressed}, temporary, true
}

// sortOut parts the pieces of a log, the oldest first, from what rotations
// that were killed left: temporary files, and plain ones that are there
// compressed too.
func sortOut(base string, files []string) (pieces []piece, unused []string) {
	for _, name := range files {
		p, temporary, ok := parse(base, name)
		switch {
		case !ok:
		case temporary, !p.compressed && slices.Contains(files, name+gzSuffix):
			unused = append(unused, name)
		default:
			pieces = append(pieces, p)
		}
	}
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Compare(a.stamp, b.stamp) })
	return pieces, unused
}

// nextStamp is later than that of every piece, also where the clock was set
// back: the oldest piece by its name is the first one to go.
func nextStamp(now time.Time, pieces []piece) string {
	stamp := now.Format(stampFormat)
	if len(pieces) == 0 {
		return stamp
	}
	newest := pieces[len(pieces)-1].stamp
	if stamp > newest {
		return stamp
	}
	at, err := time.Parse(stampFormat, newest)
	if err != nil {
		return stamp // parse let it pass
	}
	return at.Add(time.Second).Format(stampFormat)
}

// Files lists what there is of the log at path in order of age: the rotated
// files, then path itself, whether or not it is there.
func Files(path string) ([]string, error) {
	f, err := openFolder(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer f.close()
	pieces, _, err := f.list(filepath.Base(path))
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(pieces)+1)
	for _, p := range pieces {
		out = append(out, filepath.Join(filepath.Dir(path), p.name))
	}
	return append(out, path), nil
}
