// Package board makes and boots simulated ARM boards: Debian's kernel and
// user space with containerd and the product's root file system overlay, on
// QEMU's software emulation. Neither making nor booting needs root.
//
// Prepare makes a board's kernel, initial file system and disk once and keeps
// them by the content of what they are made of. Boot starts a machine on a
// throw-away layer over that disk. Commands and files reach the board over a
// serial port of its own, so that its network can be broken at will.
package board

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Arch names a kind of board.
type Arch string

// The boards that can be made.
const (
	ARM64 Arch = "arm64"
	ARMv7 Arch = "armv7"
)

// arch is what differs between the boards.
type arch struct {
	goarch, goarm string
	debian        string // Debian's name of the architecture
	triplet       string // folder of its libraries
	kernel        string // Debian package that depends on the newest kernel
	qemu          string
	machine       []string
	console       string
	kernelArgs    string // more of its command line
}

var arches = map[Arch]arch{
	ARM64: {
		goarch: "arm64", debian: "arm64", triplet: "aarch64-linux-gnu", kernel: "linux-image-cloud-arm64",
		qemu: "qemu-system-aarch64", machine: []string{"-M", "virt,gic-version=3", "-cpu", "cortex-a72"}, console: "ttyAMA0",
		// QEMU gives a seed for KASLR, which turns page table isolation on. A
		// Raspberry Pi has neither: its Cortex-A72 needs no isolation.
		kernelArgs: "kpti=off ",
	},
	ARMv7: {
		goarch: "arm", goarm: "7", debian: "armhf", triplet: "arm-linux-gnueabihf", kernel: "linux-image-armmp",
		qemu: "qemu-system-arm", machine: []string{"-M", "virt,highmem=off", "-cpu", "cortex-a15"}, console: "ttyAMA0",
	},
}

// GoEnv returns the environment variables that make the Go tool build for the
// board, or an error for an unknown board.
func (a Arch) GoEnv() ([]string, error) {
	x, ok := arches[a]
	if !ok {
		return nil, fmt.Errorf("board %q is unknown: want %s or %s", a, ARM64, ARMv7)
	}
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + x.goarch}
	if x.goarm != "" {
		env = append(env, "GOARM="+x.goarm)
	}
	return env, nil
}

// Options say which board Prepare makes and where.
type Options struct {
	Arch     Arch
	Systemd  bool      // Debian's systemd as process 1, with which the runtime makes cgroups, in place of BusyBox's init; for ARM64 alone
	Stock    Stock     // a runtime in its own configuration in place of the product's overlay; for ARM64 alone
	Dpkg     bool      // Debian's essential packages, and dpkg, to install the product's package with, in place of its binary, unit and configuration; with StockDebian alone, for both
	Repo     string    // checkout of the project; empty: the one around the working directory
	CacheDir string    // empty: .cache/board in the checkout
	Overlay  string    // root file system overlay; empty: buildroot/board/common/rootfs-overlay in the checkout
	Progress io.Writer // receives a line for each step that takes long; may be nil
}

// check says what no board can be made of.
func (o Options) check() error {
	if _, err := o.Arch.GoEnv(); err != nil {
		return err
	}
	if o.Systemd && !o.Dpkg && o.Arch != ARM64 {
		return fmt.Errorf("board %s with systemd is not made: %s is the only one", o.Arch, ARM64)
	}
	return o.checkStock()
}

// kind names boards that have an image in common.
func (o Options) kind() string {
	switch {
	case o.Dpkg:
		return "dpkg-" + string(o.Arch)
	case o.Stock != NotStock:
		return "stock-" + string(o.Stock) + "-" + string(o.Arch)
	case o.Systemd:
		return "systemd-" + string(o.Arch)
	}
	return string(o.Arch)
}

// overlays are the folders that are laid over a root file system, in order.
func (o Options) overlays() []string {
	own := filepath.Join(o.Repo, "test", "harness", "board", "overlay")
	if o.Systemd {
		return []string{own, own + "-systemd", o.Overlay}
	}
	return []string{own, o.Overlay}
}

// withDefaults fills in the empty fields.
func (o Options) withDefaults() (Options, error) {
	if err := o.check(); err != nil {
		return o, err
	}
	if o.Repo == "" {
		repo, err := findRepo()
		if err != nil {
			return o, err
		}
		o.Repo = repo
	}
	if o.CacheDir == "" {
		o.CacheDir = filepath.Join(o.Repo, ".cache", "board")
	}
	if o.Overlay == "" {
		o.Overlay = filepath.Join(o.Repo, "buildroot", "board", "common", "rootfs-overlay")
	}
	abs, err := filepath.Abs(o.CacheDir)
	if err != nil {
		return o, fmt.Errorf("find cache folder: %w", err)
	}
	o.CacheDir = abs
	return o, nil
}

func findRepo() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "harness", "board", "board.go")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("find checkout: not inside the project's source tree")
		}
		dir = up
	}
}

// progress prints steps with the seconds since the start.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
}

func newProgress(w io.Writer) *progress {
	if w == nil {
		w = io.Discard
	}
	return &progress{w: w, start: time.Now()}
}

func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "board [%3ds] %s\n", int(time.Since(p.start).Seconds()), fmt.Sprintf(format, args...))
}
