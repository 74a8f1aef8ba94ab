package network

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxFile bounds what is read of a network configuration.
const maxFile = 1 << 20

// temporary is the name of an incomplete configuration. The name is constant, so
// that interrupted writes leave only one file. It has none of the suffixes that the
// runtime reads, because the runtime watches the folder.
const temporary = ".tinylet.tmp"

// folder is where the runtime reads network configurations.
type folder struct{ path string }

// names returns the names of all files in the folder. A missing folder is empty.
func (f folder) names() ([]string, error) {
	entries, err := os.ReadDir(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list network configurations: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// networks returns those of the configurations of others that are not loopback
// only.
func (f folder) networks(others []string) (networks []string) {
	for _, name := range others {
		if !OnlyLoopback(filepath.Join(f.path, name)) {
			networks = append(networks, name)
		}
	}
	return networks
}

// read returns the content of tinylet's file, nil if there is none.
func (f folder) read() ([]byte, error) {
	file, err := os.Open(filepath.Join(f.path, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read network configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read network configuration: %w", err)
	}
	return data, nil
}

// write atomically writes data to tinylet's file. changed is false if the file has
// that content already.
func (f folder) write(data []byte) (changed bool, err error) {
	have, err := f.read()
	if err == nil && bytes.Equal(have, data) {
		return false, nil
	}
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return false, f.fault(err)
	}
	path := filepath.Join(f.path, temporary)
	defer os.Remove(path) // exists only after an error
	if err := create(path, data, 0o644); err != nil {
		return false, f.fault(err)
	}
	if err := os.Rename(path, filepath.Join(f.path, FileName)); err != nil {
		return false, f.fault(err)
	}
	return true, f.sync()
}

// create creates a file, or replaces an existing one. The file is synced to disk
// when create returns.
func create(path string, data []byte, perm os.FileMode) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Chmod(perm) // whatever the umask
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// remove removes tinylet's file. changed is false if there was none.
func (f folder) remove() (changed bool, err error) {
	err = os.Remove(filepath.Join(f.path, FileName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("remove network configuration: %w", err)
	}
	return true, f.sync()
}

func (f folder) fault(err error) error {
	return fmt.Errorf("write network configuration into %s (conf_dir of containerd, or network.configFolder of TinyletConfiguration): %w", f.path, err)
}

// sync syncs the folder, so that its file names survive a power failure.
func (f folder) sync() error {
	dir, err := os.Open(f.path)
	if err != nil {
		return f.fault(err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return f.fault(err)
	}
	return nil
}
