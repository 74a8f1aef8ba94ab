package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tinylet/tinylet/agent/store/journal"
)

// Migrated is what Migrate has done.
type Migrated struct {
	// From is the folder whose journal was accepted: Config.Dir or one that was
	// put aside. It is empty if there was nothing to do.
	From string
	// Aside is where a journal without pods lies now that was in its place.
	Aside string
}

// Migrate trusts a refused journal once: a plain one is sealed with the key, and
// one that is older than its anchor, or whose anchor is gone, becomes the
// current one. That is the journal in the folder if it would be refused, else,
// if it has no pods, the newest one that was put aside. No agent may run with
// the journal. It blocks on the disk.
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
	if _, err := os.Lstat(c.Dir); errors.Is(err, fs.ErrNotExist) && len(Asides(c.Dir)) == 0 {
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
	asides := Asides(c.Dir)
	if pods > 0 || len(asides) == 0 {
		return Migrated{}, nil
	}
	jc.Migrate = true
	return migrateAside(jc, asides[0])
}

// migrateAside puts a journal that was put aside in the place of one without
// pods. If it cannot be read, all is as before.
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
	return Migrated{From: from, Aside: aside}, j.Close()
}

// Remove removes the journal in a folder, and those that were put aside. What
// flash had of them may still be read from its cells. The error wraps
// journal.ErrLocked if an agent runs with it.
func Remove(dir string) (removed bool, err error) {
	if _, err := os.Lstat(dir); err == nil {
		if err := journal.Remove(dir); err != nil {
			return false, err
		}
		removed = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, aside := range Asides(dir) {
		if err := os.RemoveAll(aside); err != nil {
			return removed, fmt.Errorf("remove a journal that was put aside: %w", err)
		}
		removed = true
	}
	return removed, nil
}
