package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/net/cni"
)

// Plugin is the plugin name by which the runtime calls this binary.
const Plugin = cni.Type

// providePlugin makes the runtime find the binary in one of its plugin directories.
// It returns the first directory that has the plugin, or else the first one in
// which the link can be created.
func providePlugin(dirs []string, binary string) (dir string, err error) {
	for _, dir := range dirs {
		if linked(filepath.Join(dir, Plugin), binary) {
			return dir, nil
		}
	}
	var errs []error
	for _, dir := range dirs {
		if err := linkPlugin(dir, binary); err != nil {
			errs = append(errs, pluginFault(dir, Plugin, err))
			continue
		}
		return dir, nil
	}
	return "", errors.Join(errs...)
}

// linked reports whether the runtime finds a plugin at path. A regular file is part
// of the image and stays. So does another link to the binary, whose directory may
// not be writable.
func linked(path, binary string) bool {
	target, err := os.Readlink(path)
	if err == nil {
		return target == binary || sameFile(path, binary)
	}
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// linkPlugin links the binary into a directory.
func linkPlugin(dir, binary string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, Plugin)
	tmp := path + ".new"
	if err := atomicfile.Remove(tmp); err != nil {
		return err
	}
	if err := os.Symlink(binary, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// provideLoopback writes a script for the loopback plugin next to the binary's link
// in dir, unless one of the directories has such a plugin. It is a script and not a
// link because installers of plugins copy over an existing file, and through a link
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
	if err := atomicfile.Write(filepath.Join(dir, cni.LoopbackType), script, 0o755); err != nil {
		return pluginFault(dir, cni.LoopbackType, err)
	}
	return nil
}

// isScript reports whether a file is a script of provideLoopback, and whether it is
// the desired one.
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

// maxScript is larger than any script of provideLoopback, in bytes.
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
	return fmt.Errorf("install network plugin %s into %s (bin_dirs of containerd, or network.pluginFolder of TinyletConfiguration; on a read-only image install it when the image is built): %w", name, dir, err)
}
