package ipam

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	bootIDFile   = "/proc/sys/kernel/random/boot_id"
	bootPrefix   = "boot-"
	ownersDir    = "owners"
	addressesDir = "addresses"

	modeDir  fs.FileMode = 0o700
	modeFile fs.FileMode = 0o600
)

// Config is the configuration of a Store.
type Config struct {
	// Dir is the directory of the leases. Open creates it, and only this package may use
	// it. Its file system must have symbolic links and flock. A tmpfs avoids writes to
	// flash.
	Dir string
	// BootID identifies the boot; "" is the kernel's boot ID.
	BootID string
}

// Store holds the leases of one boot. It is safe for concurrent use, also by several
// processes. It starts no goroutine and keeps two directories open. Its methods are
// idempotent. They block on the file system; methods for one owner also block on other
// calls for the same owner.
type Store struct {
	dir    string
	boot   string
	owners *os.Root
	links  *os.Root

	// step is called after each step. Tests end the process in it.
	step func(name string)
}

// Open opens the directory of this boot, and creates it if it does not exist.
func Open(c Config) (*Store, error) {
	if c.Dir == "" {
		return nil, errors.New("open lease store: Dir is required")
	}
	boot, err := bootID(c.BootID)
	if err != nil {
		return nil, fmt.Errorf("open lease store %s: %w", c.Dir, err)
	}
	s, err := openBoot(c.Dir, boot)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeBoot(c.Dir, boot); err == nil {
			s, err = openBoot(c.Dir, boot)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open lease store %s: %w", c.Dir, err)
	}
	return s, nil
}

// Close closes the directories. The leases stay.
func (s *Store) Close() error {
	return errors.Join(s.owners.Close(), s.links.Close())
}

func openBoot(dir, boot string) (*Store, error) {
	owners, err := os.OpenRoot(filepath.Join(dir, bootPrefix+boot, ownersDir))
	if err != nil {
		return nil, err
	}
	links, err := os.OpenRoot(filepath.Join(dir, bootPrefix+boot, addressesDir))
	if err != nil {
		owners.Close()
		return nil, err
	}
	return &Store{dir: dir, boot: boot, owners: owners, links: links}, nil
}

func makeBoot(dir, boot string) error {
	for _, sub := range []string{ownersDir, addressesDir} {
		if err := os.MkdirAll(filepath.Join(dir, bootPrefix+boot, sub), modeDir); err != nil {
			return err
		}
	}
	return nil
}

func bootID(id string) (string, error) {
	if id == "" {
		data, err := os.ReadFile(bootIDFile)
		if err != nil {
			return "", fmt.Errorf("read boot ID: %w", err)
		}
		id = strings.TrimSpace(string(data))
	}
	if !isBootID(id) {
		return "", fmt.Errorf("boot ID %.80q must consist of 1 to 64 letters, digits and dashes", id)
	}
	return id, nil
}

func isBootID(id string) bool {
	const allowed = "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return len(id) > 0 && len(id) <= 64 && strings.Trim(id, allowed) == ""
}

func (s *Store) did(step string) {
	if s.step != nil {
		s.step(step)
	}
}
