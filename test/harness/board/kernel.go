package board

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// kernel is an unpacked kernel package.
type kernel struct {
	image   string // path of the bootable file
	release string
	dir     string // folder that holds usr/lib/modules/RELEASE
	modules modules
}

// unpackKernel unpacks a kernel package into dir and picks its modules.
func unpackKernel(ctx context.Context, deb, dir string) (kernel, error) {
	t, err := newTree(dir)
	if err != nil {
		return kernel{}, err
	}
	defer t.close()
	err = t.unpack(ctx, deb, func(name string) bool {
		return strings.HasPrefix(name, "boot/vmlinuz-") || strings.HasPrefix(name, "usr/lib/modules/")
	})
	if err != nil {
		return kernel{}, err
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return kernel{}, fmt.Errorf("find kernel in %s: %d files: %w", filepath.Base(deb), len(images), os.ErrNotExist)
	}
	k := kernel{image: images[0], dir: dir, release: strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")}
	if k.modules, err = loadModules(ctx, filepath.Join(dir, "usr", "lib", "modules", k.release)); err != nil {
		return kernel{}, err
	}
	for name, text := range k.modules.index() {
		if err := t.file("usr/lib/modules/"+k.release+"/"+name, 0o644, strings.NewReader(text)); err != nil {
			return kernel{}, err
		}
	}
	return k, nil
}
