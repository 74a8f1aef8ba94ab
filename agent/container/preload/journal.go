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

// journalVersion is of the file's form; another one is not read.
const journalVersion = 1

// maxJournal is more than a folder full of archives makes.
const maxJournal = 8 << 20

// journal is what outlives the agent: which archives have been imported.
type journal struct {
	Version int `json:"version"`
	// Leased says that a lease may be held in the runtime.
	Leased   bool       `json:"leased,omitempty"`
	Archives []imported `json:"archives,omitempty"`
}

// imported is an archive that has been imported, as it was then.
type imported struct {
	Name string `json:"name"`
	signature
	// Images are the digests of what was imported, by name in full.
	Images map[string]string `json:"images"`
}

// signature tells whether a file has changed.
type signature struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

func signatureOf(info fs.FileInfo) signature {
	return signature{Size: info.Size(), Modified: info.ModTime().UTC()}
}

// loadJournal reads the journal; one that is missing is empty.
func loadJournal(path string) (*journal, error) {
	empty := &journal{Version: journalVersion}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, fmt.Errorf("open the journal of imported archives: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err != nil {
		return empty, fmt.Errorf("read the journal of imported archives: %w", err)
	}
	var j journal
	if err := json.Unmarshal(data, &j); err != nil {
		return empty, fmt.Errorf("read the journal of imported archives %q: %w", path, err)
	}
	if j.Version != journalVersion {
		return empty, fmt.Errorf("read the journal of imported archives %q: its version is %d, not %d", path, j.Version, journalVersion)
	}
	return &j, nil
}

// save writes the journal so that a power cut leaves the old one or the new.
func (j *journal) save(path string) error {
	data, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("write the journal of imported archives: %w", err)
	}
	if err := replace(path, data); err != nil {
		return fmt.Errorf("write the journal of imported archives %q: %w", path, err)
	}
	return nil
}

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
