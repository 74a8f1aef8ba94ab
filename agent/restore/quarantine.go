package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxAside is how many journals may lie aside. A board whose key changes at
// every start must not fill its card.
const maxAside = 8

// quarantine renames the folder, down to the disk, and answers its new name.
func quarantine(dir string) (string, error) {
	dir = filepath.Clean(dir)
	for number := 1; number <= maxAside; number++ {
		aside := fmt.Sprintf("%s.aside-%d", dir, number)
		if _, err := os.Lstat(aside); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := os.Rename(dir, aside); err != nil {
			return "", err
		}
		above, err := os.Open(filepath.Dir(dir))
		if err != nil {
			return "", err
		}
		defer above.Close()
		return aside, above.Sync()
	}
	return "", fmt.Errorf("%d journals lie aside of %q already: remove those that nobody needs", maxAside, dir)
}
