package board

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// tree is a root file system being put together in a folder. Names are slash
// paths from its root; bin, sbin and lib lead into usr, as in Debian. Links
// cannot lead a write out of the folder.
type tree struct {
	root *os.Root
}

func newTree(dir string) (*tree, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make tree: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("make tree: %w", err)
	}
	return &tree{root: root}, nil
}

func (t *tree) close() error { return t.root.Close() }

// place cleans a name and applies Debian's merge of the top folders into usr.
func place(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	top, _, _ := strings.Cut(name, "/")
	switch top {
	case "bin", "sbin", "lib":
		return "usr/" + name
	}
	return name
}

func (t *tree) dir(name string, perm fs.FileMode) error {
	name = place(name)
	if name == "" {
		return nil
	}
	if err := t.parents(path.Join(name, "x")); err != nil {
		return err
	}
	return t.root.Chmod(name, perm)
}

// parents makes the folders that lead to name, with 0755 whatever the umask.
func (t *tree) parents(name string) error {
	dir := path.Dir(name)
	if dir == "." || dir == "/" {
		return nil
	}
	if _, err := t.root.Stat(dir); err == nil {
		return nil
	}
	if err := t.parents(dir); err != nil {
		return err
	}
	err := t.root.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err == nil {
		err = t.root.Chmod(dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("make folder of %s: %w", name, err)
	}
	return nil
}

func (t *tree) file(name string, perm fs.FileMode, r io.Reader) error {
	name = place(name)
	if err := t.clear(name); err != nil {
		return err
	}
	f, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make file: %w", err)
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(perm)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write file %s: %w", name, err)
	}
	return nil
}

func (t *tree) link(name, target string) error {
	name = place(name)
	if err := t.clear(name); err != nil {
		return err
	}
	if err := t.root.Symlink(target, name); err != nil {
		return fmt.Errorf("make link: %w", err)
	}
	return nil
}

// clear makes way for name and makes its parents.
func (t *tree) clear(name string) error {
	if err := t.parents(name); err != nil {
		return err
	}
	if err := t.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make way for %s: %w", name, err)
	}
	return nil
}

func (t *tree) has(name string) bool {
	_, err := t.root.Lstat(place(name))
	return err == nil
}

// copyFile copies one file of the host.
func (t *tree) copyFile(name, from string, perm fs.FileMode) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", name, err)
	}
	defer f.Close()
	return t.file(name, perm, f)
}

// copyDir lays a folder of the host over the tree. Permissions are those of
// the folder's files, reduced to 0755 and 0644 unless narrower on purpose. Files
// for which leaveOut reports true are not copied; it may be nil.
func (t *tree) copyDir(from string, leaveOut func(name string) bool) error {
	return filepath.WalkDir(from, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, p)
		if err != nil || name == "." || filepath.Base(p) == ".gitkeep" {
			return err
		}
		if leaveOut != nil && leaveOut(filepath.ToSlash(name)) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			if t.has(name) {
				return nil
			}
			return t.dir(name, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return t.link(name, target)
		case info.Mode().IsRegular():
			perm := fs.FileMode(0o644)
			if info.Mode()&0o100 != 0 {
				perm = 0o755
			}
			return t.copyFile(name, p, perm)
		}
		return fmt.Errorf("copy %s: neither file, folder nor link", p)
	})
}

// unpack adds a Debian package's files for which keep holds; keep gets the
// place in the tree.
func (t *tree) unpack(ctx context.Context, deb string, keep func(name string) bool) (err error) {
	tool, err := findTool("dpkg-deb")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, tool, "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	err = t.untar(out, keep)
	if err == nil {
		_, err = io.Copy(io.Discard, out)
	}
	_ = out.Close()
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	return nil
}

func (t *tree) untar(r io.Reader, keep func(name string) bool) error {
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := place(h.Name)
		if name == "" || !keep(name) {
			continue
		}
		perm := fs.FileMode(h.Mode & 0o777)
		switch h.Typeflag {
		case tar.TypeDir: // made with the files in it
		case tar.TypeReg:
			err = t.file(name, perm, tr)
		case tar.TypeSymlink:
			err = t.link(name, h.Linkname)
		case tar.TypeLink:
			if err = t.clear(name); err == nil {
				err = t.root.Link(place(h.Linkname), name)
			}
		default:
			err = fmt.Errorf("entry %s of type %q", name, h.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}
