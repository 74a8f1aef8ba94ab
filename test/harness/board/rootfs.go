package board

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tinylet/tinylet/agent/container/native/pause"
	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

// Names of the container images that every board has.
const (
	PauseImage   = "localhost/pause:1"
	BusyboxImage = "localhost/busybox:1"
)

// imagesFile is the archive that the product's overlay imports.
const imagesFile = "var/lib/tinylet/images/board.tar"

// adminApplets are the busybox programs that are also linked in /usr/sbin.
var adminApplets = strings.Fields(`acpid arp blkdiscard blockdev brctl chroot crond depmod fdisk findfs
	fsfreeze fstrim getty halt hwclock ifconfig ifdown ifup init insmod ip klogd loadkmap losetup lsmod
	mdev mke2fs mkswap modinfo modprobe nologin pivot_root poweroff rdate reboot rmmod route run-init
	setkeycodes start-stop-daemon sulogin swapoff swapon switch_root sysctl syslogd udhcpc udhcpd watchdog`)

// folders that no package brings. The value is the permissions.
var rootFolders = map[string]os.FileMode{
	"dev": 0o755, "proc": 0o755, "sys": 0o755, "run": 0o755, "mnt": 0o755, "root": 0o700, "home": 0o755,
	"opt": 0o755, "srv": 0o755, "tmp": 0o777, "var/tmp": 0o777, "var/log": 0o755, "var/lib": 0o755,
	"var/cache": 0o755, "var/spool": 0o755, "etc": 0o755, "usr/sbin": 0o755, "usr/bin": 0o755,
}

// mergedFolders have links to them at the top.
var mergedFolders = []string{"usr/bin", "usr/sbin", "usr/lib"}

// rootParts are what a root file system is made from.
type rootParts struct {
	arch       arch
	packages   packages
	kernel     kernel
	containerd string   // folder of containerd's programs
	guest      string   // the control program
	overlays   []string // folders, later ones win
	systemd    bool     // is process 1
	stock      Stock
	dpkg       bool // packages can be installed
}

// assemble puts the root file system together in dir and returns the busybox
// program for the initial file system.
func (p rootParts) assemble(ctx context.Context, dir string) ([]byte, error) {
	t, err := newTree(dir)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if err := p.userSpace(ctx, t); err != nil {
		return nil, err
	}
	if err := p.programs(t); err != nil {
		return nil, err
	}
	if err := p.kernelModules(t); err != nil {
		return nil, err
	}
	busybox, err := t.root.ReadFile("usr/bin/busybox")
	if err != nil {
		return nil, fmt.Errorf("read the board's busybox: %w", err)
	}
	if err := linkApplets(t, busybox); err != nil {
		return nil, err
	}
	images, err := containerImages(p.arch.goarch, busybox, stockBoards[p.stock].sandbox)
	if err != nil {
		return nil, err
	}
	if err := t.file(imagesFile, 0o644, bytes.NewReader(images)); err != nil {
		return nil, err
	}
	for _, o := range p.overlays {
		if err := t.copyDir(o, p.leaveOut); err != nil {
			return nil, fmt.Errorf("lay %s over the board's file system: %w", o, err)
		}
	}
	if p.systemd && p.stock == NotStock {
		err = groupsBySystemd(t)
	}
	return busybox, errors.Join(err, p.stock.finish(t))
}

// keep reports whether the board needs a file of the packages: it needs no
// documents and locales. The folders that are merged into usr are made here.
func (p rootParts) keep(name string) bool {
	if p.systemd && strings.HasPrefix(name, "usr/share/dbus-1/") {
		return true
	}
	if p.dpkg && keptForDpkg(name) {
		return true
	}
	drop := []string{"usr/share/", "usr/lib/" + p.arch.triplet + "/gconv/"}
	if !p.systemd {
		drop = append(drop, "usr/lib/systemd/", "etc/systemd/")
	}
	for _, d := range drop {
		if strings.HasPrefix(name, d) {
			return false
		}
	}
	return !slices.Contains(mergedFolders, name)
}

// userSpace unpacks what is kept of the packages.
func (p rootParts) userSpace(ctx context.Context, t *tree) error {
	var database dpkgDatabase
	for _, deb := range p.packages.User {
		var files []string
		err := t.unpack(ctx, deb, func(name string) bool {
			files = append(files, name)
			return p.keep(name)
		})
		if err == nil && p.dpkg {
			err = database.add(ctx, t, deb, files)
		}
		if err != nil {
			return err
		}
	}
	if p.dpkg {
		if err := database.write(t); err != nil {
			return err
		}
	}
	for name, perm := range rootFolders {
		if err := t.dir(name, perm); err != nil {
			return err
		}
	}
	links := map[string]string{
		"/var/run": "/run", "/var/lock": "/run/lock",
		"/etc/mtab": "/proc/self/mounts", "/etc/resolv.conf": "/run/resolv.conf",
	}
	for name, target := range links {
		if err := t.link(name, target); err != nil {
			return err
		}
	}
	for _, merged := range mergedFolders {
		if err := t.root.Symlink(merged, path.Base(merged)); err != nil {
			return fmt.Errorf("link %s: %w", merged, err)
		}
	}
	return nil
}

func (p rootParts) programs(t *tree) error {
	programs := containerdPrograms
	if stockBoards[p.stock].containerd == "" {
		programs = nil // the package has them
	}
	for _, n := range programs {
		if err := t.copyFile("usr/bin/"+n, filepath.Join(p.containerd, n), 0o755); err != nil {
			return err
		}
	}
	return t.copyFile("usr/lib/board/guest", p.guest, 0o755)
}

func (p rootParts) kernelModules(t *tree) error {
	dir := "usr/lib/modules/" + p.kernel.release
	files, err := filepath.Glob(filepath.Join(p.kernel.dir, dir, "modules.*"))
	if err != nil {
		return err
	}
	for _, m := range p.kernel.modules {
		files = append(files, filepath.Join(p.kernel.dir, dir, m.path))
	}
	for _, f := range files {
		rel, err := filepath.Rel(p.kernel.dir, f)
		if err != nil {
			return err
		}
		if err := t.copyFile(rel, f, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func linkApplets(t *tree, busybox []byte) error {
	applets, err := imagetar.Applets(busybox)
	if err != nil {
		return err
	}
	for _, a := range applets {
		names := []string{"usr/bin/" + a}
		if slices.Contains(adminApplets, a) {
			names = append(names, "usr/sbin/"+a)
		}
		for _, n := range names {
			if t.has(n) {
				continue
			}
			if err := t.link(n, "/usr/bin/busybox"); err != nil {
				return err
			}
		}
	}
	return nil
}

func containerImages(goarch string, busybox []byte, sandbox string) ([]byte, error) {
	program, err := pause.Program(goarch)
	if err != nil {
		return nil, err
	}
	bb, err := imagetar.Busybox(BusyboxImage, goarch, busybox)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = imagetar.Write(&b, bb, imagetar.Image{
		Name: sandbox, GOARCH: goarch, Entrypoint: []string{"/pause"}, User: "65535:65535",
		Files: []imagetar.File{{Name: "pause", Mode: 0o755, Data: program}},
	})
	return b.Bytes(), err
}
