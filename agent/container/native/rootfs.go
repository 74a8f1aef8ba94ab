package native

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/native/spec"
	"github.com/tinylet/tinylet/agent/container/native/store"
)

// readUsers reads the users and groups of a mounted root file system, which may be hostile:
// its files may be links, FIFOs or large.
func readUsers(dir string) (*spec.Users, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	defer func() { _ = root.Close() }()
	passwd, err := openRegular(root, "etc/passwd")
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	group, err := openRegular(root, "etc/group")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read users: %w", err), closeFile(passwd))
	}
	users, err := spec.ParseUsers(readerOf(passwd), readerOf(group))
	return users, errors.Join(err, closeFile(passwd), closeFile(group))
}

// openRegular opens a regular file below a root, or returns nil if there is none. It does not
// wait for the writer of a FIFO.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

func readerOf(f *os.File) io.Reader {
	if f == nil {
		return nil // not a nil *os.File in an interface
	}
	return f
}

// maxVolumeFiles bounds the files that are copied for the volumes of an image. They come from
// the image, and are copied for each container.
const maxVolumeFiles = 100_000

// makeVolumes makes a directory for each volume of an image, with the content of the image at
// its path. It returns the directories by volume.
func makeVolumes(dir, rootDir string, volumes map[string]struct{}, ids store.IDMap) (map[string]string, error) {
	if len(volumes) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(rootDir)
	if err != nil {
		return nil, fmt.Errorf("make volumes of image: %w", err)
	}
	defer func() { _ = root.Close() }()
	out := make(map[string]string, len(volumes))
	c := copier{left: maxVolumeFiles, ids: ids}
	for i, volume := range sortedKeys(volumes) {
		target := filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(target, 0o755); err != nil {
			return nil, fmt.Errorf("make volume %q of image: %w", volume, err)
		}
		if err := c.copyVolume(root, path.Clean("/" + volume)[1:], target); err != nil {
			return nil, fmt.Errorf("make volume %q of image: %w", volume, err)
		}
		out[volume] = target
	}
	return out, nil
}

func sortedKeys(m map[string]struct{}) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// copier copies trees from below a root, with owners, modes and links. It follows no link out
// of the root, and none of those that it copies.
type copier struct {
	left int
	ids  store.IDMap // of the owners below the root: the copies have those of the image
}

// copyVolume copies what is at a path below a root into a directory. An absent path is an
// empty volume.
func (c *copier) copyVolume(from *os.Root, name, target string) error {
	if name == "" {
		return errors.New("the root of the image cannot be a volume")
	}
	source, err := from.OpenRoot(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	to, err := os.OpenRoot(target)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	info, err := source.Stat(".")
	if err != nil {
		return err
	}
	if err := c.copyDir(source, to, "."); err != nil {
		return err
	}
	return c.own(to, ".", info)
}

func (c *copier) copyDir(from, to *os.Root, dir string) error {
	f, err := from.Open(dir)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(c.left + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if c.left -= len(entries); c.left < 0 {
		return fmt.Errorf("it has more than %d files", maxVolumeFiles)
	}
	for _, e := range entries {
		if err := c.copyEntry(from, to, path.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("copy %q: %w", e.Name(), err)
		}
	}
	return nil
}

func (c *copier) copyEntry(from, to *os.Root, name string) error {
	info, err := from.Lstat(name)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		if err := to.Mkdir(name, 0o700); err != nil {
			return err
		}
		if err := c.copyDir(from, to, name); err != nil {
			return err
		}
	case mode.IsRegular():
		if err := copyFile(from, to, name); err != nil {
			return err
		}
	case mode&fs.ModeSymlink != 0:
		link, err := from.Readlink(name)
		if err != nil {
			return err
		}
		if err := to.Symlink(link, name); err != nil {
			return err
		}
	default:
		return nil // devices, sockets and FIFOs are not content
	}
	return c.own(to, name, info)
}

func copyFile(from, to *os.Root, name string) error {
	in, err := openRegular(from, name)
	if err != nil || in == nil {
		return err
	}
	out, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = io.Copy(out, in)
		err = errors.Join(err, out.Close())
	}
	return errors.Join(err, in.Close())
}

// own gives a copy the owner, the mode and the time of its original.
func (c *copier) own(to *os.Root, name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("no owner")
	}
	if err := to.Lchown(name, unmapped(stat.Uid, c.ids.UIDs), unmapped(stat.Gid, c.ids.GIDs)); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	return errors.Join(to.Chmod(name, info.Mode()), to.Chtimes(name, info.ModTime(), info.ModTime()))
}

// unmapped returns the ID in a user namespace of an ID on the host.
func unmapped(id uint32, m specs.LinuxIDMapping) int {
	if id >= m.HostID && id-m.HostID < m.Size {
		return int(id - m.HostID + m.ContainerID)
	}
	return int(id)
}
