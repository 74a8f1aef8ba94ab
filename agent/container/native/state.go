package native

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

const (
	fileState = "state.json"
	// maxState bounds a state file in bytes: mostly the mounts of a container.
	maxState = 1 << 20
)

// saveState writes the state of an object until the next boot.
func saveState(dir string, state any) error {
	data, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(dir, fileState), data, 0o600); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// loadState reads the state of an object. It returns fs.ErrNotExist after a boot.
func loadState(dir string, into any) error {
	data, err := atomicfile.Read(filepath.Join(dir, fileState), maxState)
	if err != nil {
		return fmt.Errorf("load state: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("load state in %q: %w", dir, err)
	}
	return nil
}

// removeState removes the directory of an object, in which nothing may be mounted.
func removeState(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}
