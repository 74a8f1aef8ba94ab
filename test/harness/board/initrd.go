package board

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tinylet/tinylet/test/harness/board/cpio"
)

// injectDir is where the initial file system holds files for the root.
const injectDir = "inject"

// File is a file for a board, put into its root file system before its init
// starts. Exactly one of Data, Source and Link is used, in this order.
type File struct {
	Path   string      // absolute, in the board
	Mode   fs.FileMode // permission bits
	Data   []byte
	Source string // path of a file on the host
	Link   string // target of a symbolic link
}

// initScript mounts the root disk, copies the injected files and starts init.
const initScript = `#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
for m in $(/bin/busybox cat /modules); do
	/bin/busybox insmod /lib/$m.ko || echo "initrd: module $m not loaded"
done
n=0
until [ -b /dev/vda ] || [ $n -ge 100 ]; do
	/bin/busybox sleep 0.1
	n=$((n + 1))
done
/bin/busybox mount -t ext4 -o noatime /dev/vda /root || {
	echo "initrd: the root disk cannot be mounted"
	/bin/busybox dmesg | /bin/busybox tail -n 20
	/bin/busybox poweroff -f
}
[ -d /inject ] && /bin/busybox cp -a /inject/. /root/
init=/sbin/init
for a in $(/bin/busybox cat /proc/cmdline); do
	case $a in init=*) init=${a#init=} ;; esac
done
/bin/busybox mount -o move /dev /root/dev
/bin/busybox umount /sys /proc
exec /bin/busybox switch_root /root $init
`

// baseInitrd makes the initial file system that all boots of an image share.
func baseInitrd(k kernel, busybox []byte) ([]byte, error) {
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	for _, dir := range []string{"dev", "proc", "sys", "root"} {
		if err := w.Dir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := w.File("bin/busybox", 0o755, busybox); err != nil {
		return nil, err
	}
	order := k.modules.loadOrder(bootModules...)
	for _, m := range order {
		data, err := os.ReadFile(filepath.Join(k.dir, "usr", "lib", "modules", k.release, k.modules[m].path))
		if err != nil {
			return nil, fmt.Errorf("make initial file system: %w", err)
		}
		if err := w.File("lib/"+m+".ko", 0o644, data); err != nil {
			return nil, err
		}
	}
	if err := w.File("modules", 0o644, []byte(strings.Join(order, "\n"))); err != nil {
		return nil, err
	}
	if err := w.File("init", 0o755, []byte(initScript)); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// injected makes the archive that follows the base and carries files.
func injected(files []File) ([]byte, error) {
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	for _, f := range files {
		name := path.Join(injectDir, place(f.Path))
		if f.Data == nil && f.Source == "" && f.Link != "" {
			if err := w.Symlink(name, f.Link); err != nil {
				return nil, err
			}
			continue
		}
		data := f.Data
		if data == nil {
			var err error
			if data, err = os.ReadFile(f.Source); err != nil {
				return nil, fmt.Errorf("put %s into the board: %w", f.Path, err)
			}
		}
		if err := w.File(name, uint32(f.Mode.Perm()), data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
