package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// journalFile is the file name of package journal.
const journalFile = "journal"

// maxQuarantined bounds the quarantined journals. A node whose key changes at every
// start must not fill its disk.
const maxQuarantined = 8

// quarantine renames the directory durably and returns its new name.
func quarantine(dir string) (string, error) {
	dir = filepath.Clean(dir)
	for number := 1; number <= maxQuarantined; number++ {
		aside := fmt.Sprintf("%s.aside-%d", dir, number)
		if _, err := os.Lstat(aside); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		return aside, move(dir, aside)
	}
	return "", fmt.Errorf("%d quarantined journals of %q exist already: remove those no longer needed", maxQuarantined, dir)
}

// move renames a directory durably.
func move(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(to))
}

// Quarantined returns the directories of quarantined journals, the newest first.
// Their content is unchanged: a journal that was not sealed has Secrets in
// clear text.
func Quarantined(dir string) []string {
	changed := make(map[string]time.Time)
	var out []string
	for number := 1; number <= maxQuarantined; number++ {
		aside := fmt.Sprintf("%s.aside-%d", filepath.Clean(dir), number)
		info, err := os.Lstat(aside)
		if err != nil || !info.IsDir() {
			continue
		}
		if file, err := os.Lstat(filepath.Join(aside, journalFile)); err == nil {
			changed[aside] = file.ModTime()
		}
		out = append(out, aside)
	}
	slices.SortStableFunc(out, func(a, b string) int { return changed[b].Compare(changed[a]) })
	return out
}
