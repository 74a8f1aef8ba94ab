package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Plugin is the name by which the runtime calls this binary.
const Plugin = "tinylet-cni"

// linkPlugin has the runtime find the binary: a link in its folder of plugins.
// A program of that name that is no link is left as it is, and so is another
// link to the binary: it may be an image's, which cannot be written to.
func linkPlugin(dir, binary string) error {
	path := filepath.Join(dir, Plugin)
	have, err := os.Readlink(path)
	switch {
	case err == nil && (have == binary || sameFile(path, binary)):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		if info, statErr := os.Stat(path); statErr == nil && info.Mode().IsRegular() {
			return nil // an image that brings its own
		}
		return pluginFault(dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return pluginFault(dir, err)
	}
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pluginFault(dir, err)
	}
	if err := os.Symlink(binary, tmp); err != nil {
		return pluginFault(dir, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return pluginFault(dir, err)
	}
	return nil
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

func pluginFault(dir string, err error) error {
	return fmt.Errorf("link %s into %s (network.pluginFolder of TinyletConfiguration, and bin_dirs of containerd, name it; on a read-only image put the link there when it is made): %w", Plugin, dir, err)
}
