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
	bootIDFile = "/proc/sys/kernel/random/boot_id"
	bootPrefix = "boot-"
	ownersDir  = "owners"
	linksDir   = "addresses"

	modeDir  fs.FileMode = 0o700
	modeFile fs.FileMode = 0o600
)

// Config says where leases are.
type Config struct {
	// Dir is the folder; it is made, and is this package's alone. It needs
	// symbolic links and flock. In a tmpfs it costs no writes to flash.
	Dir string
	// BootID names the boot; "" asks the kernel.
	BootID string
}

// Store is the leases of one boot. It is safe for concurrent use, also by
// several processes; it starts nothing and holds two folders open. Its methods
// block on the file system, and those that name an owner on other calls for
// the same owner; all are idempotent.
type Store struct {
	dir    string
	boot   string
	owners *os.Root
	links  *os.Root

	// step is told of every step that is done; tests die in it.
	step func(name string)
}

// Open opens the folder of this boot, or makes it.
func Open(c Config) (*Store, error) {
	if c.Dir == "" {
		return nil, errors.New("open leases: no folder is configured")
	}
	boot, err := bootID(c.BootID)
	if err != nil {
		return nil, fmt.Errorf("open leases in %s: %w", c.Dir, err)
	}
	s, err := openBoot(c.Dir, boot)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeBoot(c.Dir, boot); err == nil {
			s, err = openBoot(c.Dir, boot)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open leases in %s: %w", c.Dir, err)
	}
	return s, nil
}

// Close lets go of the folders. Leases stay.
func (s *Store) Close() error {
	return errors.Join(s.owners.Close(), s.links.Close())
}

func openBoot(dir, boot string) (*Store, error) {
	owners, err := os.OpenRoot(filepath.Join(dir, bootPrefix+boot, ownersDir))
	if err != nil {
		return nil, err
	}
	links, err := os.OpenRoot(filepath.Join(dir, bootPrefix+boot, linksDir))
	if err != nil {
		owners.Close()
		return nil, err
	}
	return &Store{dir: dir, boot: boot, owners: owners, links: links}, nil
}

func makeBoot(dir, boot string) error {
	for _, sub := range []string{ownersDir, linksDir} {
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
			return "", fmt.Errorf("read the boot ID: %w", err)
		}
		id = strings.TrimSpace(string(data))
	}
	if !isBootID(id) {
		return "", fmt.Errorf("boot ID %.80q is not made of 1 to 64 letters, digits and dashes", id)
	}
	return id, nil
}

func isBootID(id string) bool {
	for _, c := range []byte(id) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return len(id) > 0 && len(id) <= 64
}

func (s *Store) did(step string) {
	if s.step != nil {
		s.step(step)
	}
}
