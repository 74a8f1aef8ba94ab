package preload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
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
	if err := replace(path, data); err != nil {
		return fmt.Errorf("write image archive journal %q: %w", path, err)
	}
	return nil
}

// replace atomically replaces the file at path, and syncs it and its
// directory. It creates the directory.
func replace(path string, data []byte) (err error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(temporary, path); err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
