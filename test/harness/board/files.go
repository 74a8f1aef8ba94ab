package board

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

// PackageFiles returns the files of Debian packages that are not on the board,
// for container images: those of the list packages/<architecture>-<name>, which
// has all that they depend on. Documents and locales are left out. /lib is a
// link to /usr/lib, as on Debian.
func PackageFiles(ctx context.Context, o Options, name string) ([]imagetar.File, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	say := newProgress(o.Progress)
	unlock, err := lock(ctx, o.CacheDir, say)
	if err != nil {
		return nil, err
	}
	defer unlock()
	files, err := packageFiles(ctx, o, name, say)
	if err != nil {
		return nil, fmt.Errorf("read the packages of %s: %w", name, err)
	}
	return files, nil
}

func packageFiles(ctx context.Context, o Options, name string, say *progress) ([]imagetar.File, error) {
	a := arches[o.Arch]
	f, err := locks.Open("packages/" + a.debian + "-" + name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := readList(f)
	if err != nil {
		return nil, err
	}
	mirror, err := debianMirror("/etc/apt")
	if err != nil {
		return nil, err
	}
	d := &debs{arch: a, say: say, dir: filepath.Join(o.CacheDir, "debian-"+a.debian+"-"+name)}
	if err := d.configure(mirror); err != nil {
		return nil, err
	}
	p, err := d.fetchLocked(ctx, mirror, list)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "packages-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	t, err := newTree(dir)
	if err != nil {
		return nil, err
	}
	defer t.close()
	for _, deb := range p.User {
		if err := t.unpack(ctx, deb, func(file string) bool { return neededInImage(file, a.triplet) }); err != nil {
			return nil, err
		}
	}
	files := []imagetar.File{{Name: "lib", Link: "usr/lib"}}
	err = fs.WalkDir(t.root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		file, err := imageFile(t, path, e)
		files = append(files, file)
		return err
	})
	return files, err
}

// neededInImage reports whether a program needs a file of its packages.
func neededInImage(file, triplet string) bool {
	return strings.HasPrefix(file, "usr/") && !strings.HasPrefix(file, "usr/share/") && !strings.HasPrefix(file, "usr/lib/"+triplet+"/gconv/")
}

func imageFile(t *tree, path string, e fs.DirEntry) (imagetar.File, error) {
	if e.Type() == fs.ModeSymlink {
		target, err := t.root.Readlink(path)
		return imagetar.File{Name: path, Link: target}, err
	}
	info, err := e.Info()
	if err != nil {
		return imagetar.File{}, err
	}
	data, err := t.root.ReadFile(path)
	return imagetar.File{Name: path, Mode: info.Mode().Perm(), Data: data}, err
}
