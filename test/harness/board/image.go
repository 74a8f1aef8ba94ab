package board

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// diskSize is the size of a board's root disk; its file is sparse.
const diskSize = "2G"

// Image is a board ready to boot. Its files are shared and must not be
// changed; they stay while the process that prepared it runs.
type Image struct {
	Arch   Arch
	Kernel string // bootable kernel
	Initrd string // initial file system; "": the kernel mounts the root by itself
	Disk   string // root disk in QEMU's qcow2 format, or in raw format without Initrd

	cmdline string   // more of the kernel's command line
	use     *os.File // keeps prune away as long as it is open
}

// Prepare makes a board, or finds it in the cache. Making one takes minutes
// the first time, half a minute after a change of the overlay. Callers in
// several processes wait for each other. It needs the programs of HostPackages and,
// unless the cache has the parts, a Debian mirror and the Go module proxy.
func Prepare(ctx context.Context, o Options) (*Image, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkHost(); err != nil {
		return nil, err
	}
	say := newProgress(o.Progress)
	unlock, err := lock(ctx, o.CacheDir, say)
	if err != nil {
		return nil, err
	}
	defer unlock()
	im, err := prepare(ctx, o, say)
	if err != nil {
		return nil, fmt.Errorf("prepare %s board: %w", o.Arch, err)
	}
	return im, nil
}

// lock keeps other processes out of the cache; it waits for them.
func lock(ctx context.Context, dir string, say *progress) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cache folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock cache folder: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		say.printf("waiting for another process that makes a board")
		got := make(chan error, 1)
		go func() { got <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
		select {
		case err = <-got:
		case <-ctx.Done():
			go func() { // no signal reaches the wait; what it gets is given back
				<-got
				_ = f.Close()
			}()
			return nil, fmt.Errorf("lock cache folder: %w", context.Cause(ctx))
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock cache folder: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

func prepare(ctx context.Context, o Options, say *progress) (*Image, error) {
	a := arches[o.Arch]
	version := stockBoards[o.Stock].containerd
	containerd := containerdDir(o.CacheDir, o.Arch, version)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	built := make(chan error, 1)
	go func() { // the network and the processor at the same time
		var err error
		if version != "" {
			err = buildContainerd(ctx, o.Arch, version, containerd, say)
		}
		if err != nil {
			cancel(err)
		}
		built <- err
	}()
	pkgs, err := newDebs(o, o.CacheDir, say).fetch(ctx)
	if err != nil {
		cancel(err)
	}
	if builderr := <-built; builderr != nil || err != nil {
		return nil, context.Cause(ctx)
	}
	guest := filepath.Join(o.CacheDir, "guest-"+string(o.Arch))
	if err := buildGuest(ctx, o.Arch, o.Repo, guest); err != nil {
		return nil, err
	}
	parts := rootParts{arch: a, packages: pkgs, containerd: containerd, guest: guest, overlays: o.overlays(), systemd: o.Systemd, stock: o.Stock, dpkg: o.Dpkg}
	key, err := imageKey(o, parts)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.CacheDir, "image", o.kind()+"-"+key)
	im := imageIn(o.Arch, dir)
	if _, err := os.Stat(dir); err != nil {
		if err := makeImage(ctx, o.Arch, parts, dir, say); err != nil {
			return nil, err
		}
	}
	if im.use, err = use(dir); err != nil {
		return nil, err
	}
	return im, errors.Join(prune(o.CacheDir, o, containerdDirs(o.CacheDir, o.Arch)), sweep())
}

func imageIn(a Arch, dir string) *Image {
	return &Image{
		Arch: a, Kernel: filepath.Join(dir, "kernel"),
		Initrd: filepath.Join(dir, "initrd"), Disk: filepath.Join(dir, "root.qcow2"),
	}
}

// makeImage makes the files of an image in a folder beside dir and renames it.
func makeImage(ctx context.Context, a Arch, p rootParts, dir string, say *progress) (err error) {
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(tmp)
		}
	}()
	say.printf("unpacking the kernel")
	if p.kernel, err = unpackKernel(ctx, p.packages.Kernel, filepath.Join(tmp, "kernel.d")); err != nil {
		return err
	}
	say.printf("putting the root file system together")
	root := filepath.Join(tmp, "root.d")
	busybox, err := p.assemble(ctx, root)
	if err != nil {
		return err
	}
	initrd, err := baseInitrd(p.kernel, busybox)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "initrd"), initrd, 0o644); err != nil {
		return err
	}
	if err := os.Rename(p.kernel.image, filepath.Join(tmp, "kernel")); err != nil {
		return err
	}
	raw := filepath.Join(tmp, "root.ext4")
	if err := makeDisk(ctx, root, raw); err != nil {
		return err
	}
	if err := firstBoot(ctx, imageIn(a, tmp), raw, stockBoards[p.stock].sandbox, say); err != nil {
		return err
	}
	for _, d := range []string{root, p.kernel.dir, raw} {
		if err := os.RemoveAll(d); err != nil {
			return err
		}
	}
	return os.Rename(tmp, dir)
}

// makeDisk makes the root disk. Under fakeroot all files belong to root,
// whoever runs it.
func makeDisk(ctx context.Context, root, file string) error {
	mkfs, err := findTool("mkfs.ext4")
	if err != nil {
		return err
	}
	_, err = run(ctx, "", nil, "fakeroot", "--", mkfs, "-q", "-F", "-d", root, "-L", "board", "-m", "1",
		"-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", file, diskSize)
	if err != nil {
		return fmt.Errorf("make root disk: %w", err)
	}
	return nil
}

// imageKey names an image by the content of all that it is made of: the
// packages, programs and overlays, and the sources of this package.
func imageKey(o Options, p rootParts) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, o.kind(), filepath.Base(p.packages.Kernel), stockBoards[o.Stock], containerdTags)
	for _, u := range p.packages.User {
		fmt.Fprintln(h, filepath.Base(u))
	}
	if err := hashFile(h, p.guest); err != nil {
		return "", err
	}
	for _, dir := range append([]string{filepath.Join(o.Repo, "test", "harness", "board")}, p.overlays...) {
		if err := hashDir(h, dir); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func hashDir(h io.Writer, dir string) error {
	return filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(p, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		// The tree takes no more of the permissions, which depend on the umask.
		fmt.Fprintf(h, "%q %v %v\n", rel, info.Mode().Type(), info.Mode()&0o100)
		switch {
		case info.Mode().IsRegular():
			return hashFile(h, p)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			fmt.Fprintf(h, "%q\n", target)
			return err
		}
		return nil
	})
}

func hashFile(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(h, f)
	return err
}
