package network

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/net/cni"
)

// maxFile bounds what is read of a network configuration.
const maxFile = 1 << 20

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

// ConfigNames returns the names of the network configurations in a directory, in the
// order in which runtimes read them. A missing directory has none.
func ConfigNames(dir string) ([]string, error) {
	names, err := folder{dir}.names()
	return foreign(names, func() bool { return false }), err
}

// OwnConfig reads tinylet's configuration in a directory. ours is false if there is
// none, or one of others with its name. c is zero if it cannot be parsed.
func OwnConfig(dir string) (c cni.Config, ours bool, err error) {
	data, err := folder{dir}.read()
	c, ours = parseOwn(data)
	return c, ours, err
}

// read returns the content of tinylet's file, nil if there is none.
func (f folder) read() ([]byte, error) {
	data, err := readFile(filepath.Join(f.path, FileName), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read network configuration: %w", err)
	}
	return data, nil
}

// readFile reads at most limit bytes of a file.
func readFile(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}

// write atomically writes data to tinylet's file. changed is false if the file has
// that content already.
func (f folder) write(data []byte) (changed bool, err error) {
	have, err := f.read()
	if err == nil && bytes.Equal(have, data) {
		return false, nil
	}
	if err := atomicfile.Write(filepath.Join(f.path, FileName), data, 0o644); err != nil {
		return false, f.fault(err)
	}
	return true, nil
}

// remove removes tinylet's file, if there is one.
func (f folder) remove() error {
	err := os.Remove(filepath.Join(f.path, FileName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove network configuration: %w", err)
	}
	if err := atomicfile.SyncDir(f.path); err != nil {
		return f.fault(err)
	}
	return nil
}

func (f folder) fault(err error) error {
	return fmt.Errorf("write network configuration into %s (conf_dir of containerd, or network.configFolder of TinyletConfiguration): %w", f.path, err)
}
