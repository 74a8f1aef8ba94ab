package logrotate

import (
	"cmp"
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

// rotatedFile is a rotated file of a log.
type rotatedFile struct {
	name       string // without the directory
	stamp      string
	compressed bool
}

// parse parses the name of a file next to the log base. temporary means that
// an interrupted rotation left the file.
func parse(base, name string) (p rotatedFile, temporary, ok bool) {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok {
		return rotatedFile{}, false, false
	}
	rest, temporary = strings.CutSuffix(rest, tmpSuffix)
	stamp, compressed := strings.CutSuffix(rest, gzSuffix)
	// After a stamp of the year 9999 there might be no later one.
	at, err := time.Parse(stampFormat, stamp)
	if err != nil || len(stamp) != len(stampFormat) || at.Year() >= 9999 {
		return rotatedFile{}, false, false
	}
	return rotatedFile{name: name, stamp: stamp, compressed: compressed}, temporary, true
}

// classify returns the rotated files of a log, the oldest first, and the unused
// files that interrupted rotations left: temporary ones, and plain ones that
// also exist compressed.
func classify(base string, files []string) (pieces []rotatedFile, unused []string) {
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
	slices.SortFunc(pieces, func(a, b rotatedFile) int { return cmp.Compare(a.stamp, b.stamp) })
	return pieces, unused
}

// nextStamp returns a stamp later than that of every piece, even if the clock
// was set back, because the oldest piece by name is removed first.
func nextStamp(now time.Time, pieces []rotatedFile) string {
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
		return stamp // not reached: parse has checked it
	}
	return at.Add(time.Second).Format(stampFormat)
}
