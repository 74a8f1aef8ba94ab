package preload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// journalVersion is the version of the file format. A file of another version
// is ignored.
const journalVersion = 1

// maxJournal limits the size of the journal in bytes. It is above the needs of
// a full folder of archives.
const maxJournal = 8 << 20

// journal is the persistent list of imported archives.
type journal struct {
	Version int `json:"version"`
	// Leased means that the runtime may hold a lease for an import.
	Leased   bool       `json:"leased,omitempty"`
	Archives []imported `json:"archives,omitempty"`
}

// imported is an imported archive, with its signature at the import.
type imported struct {
	Name string `json:"name"`
	signature
	// Images maps the full names of the imported images to their digests.
	Images map[string]string `json:"images"`
}

// signature identifies a version of a file, to detect changes.
type signature struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

func signatureOf(info fs.FileInfo) signature {
	return signature{Size: info.Size(), Modified: info.ModTime().UTC()}
}

// loadJournal reads the journal. A missing file is an empty journal. With an
// error it also returns an empty journal.
func loadJournal(path string) (*journal, error) {
	empty := &journal{Version: journalVersion}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, fmt.Errorf("open image archive journal: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err != nil {
		return empty, fmt.Errorf("read image archive journal: %w", err)
	}
	var j journal
	if err := json.Unmarshal(data, &j); err != nil {
		return empty, fmt.Errorf("parse image archive journal %q: %w", path, err)
	}
	if j.Version != journalVersion {
		return empty, fmt.Errorf("parse image archive journal %q: unsupported version %d, want %d", path, j.Version, journalVersion)
	}
	return &j, nil
}

// save writes the journal atomically: a power cut leaves the old one or the
// new one.
func (j *journal) save(path string) error {
	data, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode image archive journal: %w", err)
	}
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("write image archive journal %q: %w", path, err)
	}
	return nil
}
