package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tinylet/tinylet/agent/store/journal"
)

// Migrated is the result of Migrate.
type Migrated struct {
	// From is the directory of the accepted journal: Config.Dir or a
	// quarantined one. It is empty if there was nothing to do.
	From string `json:"from"`
	// Quarantined is the new directory of a journal without pods that was in its
	// place.
	Quarantined string `json:"aside,omitempty"`
}

// Migrate accepts a rejected journal once: a plain one is sealed with the key,
// and one that is older than its anchor, or whose anchor is missing, becomes
// the current one. It accepts the journal in the directory if Open would reject
// it; otherwise, if that journal has no pods, it accepts the newest quarantined
// one. No agent may use the journal meanwhile. It blocks on the disk.
func Migrate(c Config) (Migrated, error) {
	m, err := migrate(&c)
	if err != nil {
		return Migrated{}, fmt.Errorf("migrate the journal in %q: %w", c.Dir, err)
	}
	return m, nil
}

func migrate(c *Config) (Migrated, error) {
	if c.Key == nil {
		return Migrated{}, errors.New("no key is configured: set journalKeyTPMFile, journalKeyFile or journalKeyring first")
	}
	jc, err := journalConfig(c)
	if err != nil {
		return Migrated{}, err
	}
	defer clear(jc.Key)
	if _, err := os.Lstat(c.Dir); errors.Is(err, fs.ErrNotExist) && len(Quarantined(c.Dir)) == 0 {
		return Migrated{}, nil
	}
	j, err := journal.Open(jc)
	switch {
	case errors.Is(err, journal.ErrPlain) || errors.Is(err, journal.ErrStale):
		jc.Migrate = true
		if j, err = journal.Open(jc); err != nil {
			return Migrated{}, err
		}
		return Migrated{From: c.Dir}, j.Close()
	case err != nil:
		return Migrated{}, err
	}
	pods := len(j.Keys(prefixPod))
	if err := j.Close(); err != nil {
		return Migrated{}, err
	}
	asides := Quarantined(c.Dir)
	if pods > 0 || len(asides) == 0 {
		return Migrated{}, nil
	}
	jc.Migrate = true
	return migrateAside(jc, asides[0])
}

// migrateAside replaces a journal without pods by a quarantined one. If that
// cannot be read, nothing changes.
func migrateAside(jc journal.Config, from string) (Migrated, error) {
	aside, err := quarantine(jc.Dir)
	if err != nil {
		return Migrated{}, err
	}
	if err := move(from, jc.Dir); err != nil {
		return Migrated{}, errors.Join(err, move(aside, jc.Dir))
	}
	j, err := journal.Open(jc)
	if err != nil {
		return Migrated{}, errors.Join(err, move(jc.Dir, from), move(aside, jc.Dir))
	}
	return Migrated{From: from, Quarantined: aside}, j.Close()
}

// Remove removes the journal in a directory and its quarantined ones. The data
// may remain readable from flash cells. The error wraps journal.ErrLocked if an
// agent uses the journal.
func Remove(dir string) (removed bool, err error) {
	if _, err := os.Lstat(dir); err == nil {
		if err := journal.Remove(dir); err != nil {
			return false, err
		}
		removed = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, aside := range Quarantined(dir) {
		if err := os.RemoveAll(aside); err != nil {
			return removed, fmt.Errorf("remove quarantined journal: %w", err)
		}
		removed = true
	}
	return removed, nil
}
