package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tinylet/tinylet/net/cni"
)

// Plugin is the name by which the runtime calls this binary.
const Plugin = cni.Type

// providePlugin has the runtime find the binary in one of its plugin
// directories, and returns which: the first that has it, or else the first in
// which the link can be made.
func providePlugin(dirs []string, binary string) (dir string, err error) {
	for _, dir := range dirs {
		if linked(filepath.Join(dir, Plugin), binary) {
			return dir, nil
		}
	}
	var errs []error
	for _, dir := range dirs {
		if err := link(dir, binary); err != nil {
			errs = append(errs, err)
			continue
		}
		return dir, nil
	}
	return "", errors.Join(errs...)
}

// linked reports whether the runtime finds a plugin at path. A program that is
// no link is an image's own, and left as it is; so is another link to the
// binary, which may not be writable.
func linked(path, binary string) bool {
	target, err := os.Readlink(path)
	if err == nil {
		return target == binary || sameFile(path, binary)
	}
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// link links the binary into a directory.
func link(dir, binary string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return pluginFault(dir, Plugin, err)
	}
	path := filepath.Join(dir, Plugin)
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pluginFault(dir, Plugin, err)
	}
	if err := os.Symlink(binary, tmp); err != nil {
		return pluginFault(dir, Plugin, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return pluginFault(dir, Plugin, err)
	}
	return nil
}

// provideLoopback puts a script for the plugin loopback beside the binary's link
// in dir, unless one of the directories has such a plugin. A script and no link:
// installers of plugins copy over the file that they find, and through a link
// they would overwrite the binary.
func provideLoopback(dirs []string, dir string) error {
	script := []byte("#!" + filepath.Join(dir, Plugin) + " " + cni.LoopbackType + "\n")
	for _, d := range dirs {
		path := filepath.Join(d, cni.LoopbackType)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 || info.Size() == 0 {
			continue
		}
		ours, current := isScript(path, info, script)
		if !ours || current {
			return nil
		}
		dir = d // the runtime finds a stale script before a new one in a later directory
		break
	}
	path := filepath.Join(dir, cni.LoopbackType)
	tmp := path + ".new"
	defer os.Remove(tmp) // gone by then, unless something failed
	if err := create(tmp, script, 0o755); err != nil {
		return pluginFault(dir, cni.LoopbackType, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return pluginFault(dir, cni.LoopbackType, err)
	}
	return nil
}

// isScript reports whether a file is a script of provideLoopback, and whether it
// is the one that is wanted.
func isScript(path string, info fs.FileInfo, want []byte) (ours, current bool) {
	if info.Size() > maxScript {
		return false, false
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return false, false
	}
	return bytes.HasPrefix(have, []byte("#!")) && bytes.HasSuffix(have, []byte("/"+Plugin+" "+cni.LoopbackType+"\n")), bytes.Equal(have, want)
}

// maxScript is more than any script of provideLoopback has, in bytes.
const maxScript = 4096

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

func pluginFault(dir, name string, err error) error {
	return fmt.Errorf("install the network plugin %s into %s (bin_dirs of containerd name it, unless network.pluginFolder of TinyletConfiguration does; on a read-only image put it there when the image is made): %w", name, dir, err)
}
