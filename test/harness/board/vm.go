package board

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// VMOptions say how Boot starts a board. The zero value boots with 512 MB, two
// processors, the present time and a disk that is thrown away.
type VMOptions struct {
	MemoryMB     int
	CPUs         int
	ExtraCmdline string    // added to the kernel's command line, such as cgroup_disable=memory
	Date         time.Time // the board's clock at start
	Disk         string    // disk made by NewDisk, kept afterwards; empty: a new one, thrown away
	DiskCache    string    // QEMU's cache mode for the disk; empty: unsafe
	Files        []File    // put into the root file system before init starts
	Network      *Network  // where its network card leads; nil: QEMU's user network, which leads nowhere
	Second       *Network  // where a second card beside Network's leads, which is the board's to set up; nil: there is none
	Console      io.Writer // receives what the board prints; may be nil
}

// DiskImage is a board whose disk was made elsewhere: it has its own kernel arguments, and no
// control program. It is for PowerOn.
func DiskImage(a Arch, kernel, disk, cmdline string) *Image {
	return &Image{Arch: a, Kernel: kernel, Disk: disk, cmdline: cmdline}
}

// VM is a running board. All methods may be called concurrently.
type VM struct {
	dir     string
	hold    *os.File // marks dir as in use
	control *control
	console *console
	cmd     *exec.Cmd
	ended   chan struct{} // closed when QEMU has ended
	wg      sync.WaitGroup
	said    tailBuffer // QEMU's own messages
}

// Boot starts a board and returns when its control program answers, which is
// before its services run: see WaitBooted. Close must be called. ctx limits
// only the start.
func Boot(ctx context.Context, im *Image, o VMOptions) (*VM, error) {
	vm, err := PowerOn(ctx, im, o)
	if err != nil {
		return nil, err
	}
	select {
	case <-vm.control.hello:
		return vm, nil
	case <-vm.ended:
		err = errors.New("QEMU ended before the board was up")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	err = fmt.Errorf("boot board: %w%s", err, vm.lastWords())
	_ = vm.Close()
	return nil, err
}

// PowerOn starts a board and does not wait for it. Close must be called.
func PowerOn(ctx context.Context, im *Image, o VMOptions) (_ *VM, err error) {
	dir, hold, err := scratch()
	if err != nil {
		return nil, fmt.Errorf("boot board: %w", err)
	}
	vm := &VM{dir: dir, hold: hold, control: newControl(), console: newConsole(o.Console), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = fmt.Errorf("boot board: %w%s", err, vm.lastWords())
			_ = vm.Close()
		}
	}()
	if err := o.checkNetworks(); err != nil {
		close(vm.ended)
		return nil, err
	}
	if o.Disk == "" {
		o.Disk = filepath.Join(dir, "disk.qcow2")
		if err := NewDisk(ctx, im, o.Disk); err != nil {
			close(vm.ended)
			return nil, err
		}
	}
	if err := vm.start(im, o); err != nil {
		return nil, err
	}
	return vm, nil
}

// NewDisk makes a disk for VMOptions.Disk in a new file: a layer over the
// image's, so that it is small and needs the image.
func NewDisk(ctx context.Context, im *Image, path string) error {
	format := "qcow2"
	if im.Initrd == "" {
		format = "raw"
	}
	return newLayer(ctx, im.Disk, format, path)
}

func newLayer(ctx context.Context, base, format, path string) error {
	if _, err := run(ctx, "", nil, "qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", format, path); err != nil {
		return fmt.Errorf("make disk %s: %w", path, err)
	}
	return nil
}

// start starts QEMU, which connects to the two sockets.
func (vm *VM) start(im *Image, o VMOptions) error {
	initrd, err := vm.initrd(im, o)
	if err != nil {
		close(vm.ended)
		return err
	}
	serve := []struct {
		socket string
		run    func(io.ReadWriteCloser)
	}{{"control", vm.control.run}, {"console", vm.console.run}}
	for _, s := range serve {
		l, err := net.Listen("unix", filepath.Join(vm.dir, s.socket))
		if err != nil {
			close(vm.ended)
			return err
		}
		vm.wg.Go(func() {
			conn, err := l.Accept()
			_ = l.Close()
			if err != nil {
				return
			}
			vm.wg.Go(func() {
				<-vm.ended
				// Bytes that QEMU sent last may still be unread.
				_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			})
			s.run(conn)
			_ = conn.Close()
		})
		vm.wg.Go(func() {
			<-vm.ended
			_ = l.Close()
		})
	}
	x := arches[im.Arch]
	tool, err := findTool(x.qemu)
	if err != nil {
		close(vm.ended)
		return err
	}
	argv, err := o.Network.command(append([]string{tool}, qemuArgs(x, im, o, vm.dir, initrd)...))
	if err != nil {
		close(vm.ended)
		return err
	}
	vm.cmd = exec.Command(argv[0], argv[1:]...)
	vm.cmd.Stdout, vm.cmd.Stderr = &vm.said, &vm.said
	vm.cmd.SysProcAttr = dieWithParent()
	if err := vm.cmd.Start(); err != nil {
		close(vm.ended)
		return fmt.Errorf("start QEMU: %w", err)
	}
	vm.wg.Go(func() {
		_ = vm.cmd.Wait() // how it ended is in its messages
		close(vm.ended)
	})
	return nil
}

// initrd returns the path of the image's initial file system with files added.
func (vm *VM) initrd(im *Image, o VMOptions) (string, error) {
	files := slices.Concat(o.Network.files(), o.Files)
	if im.Initrd == "" {
		if len(o.Files) > 0 {
			return "", errors.New("files for a board without an initial file system")
		}
		return "", nil
	}
	if len(files) == 0 {
		return im.Initrd, nil
	}
	base, err := os.ReadFile(im.Initrd)
	if err != nil {
		return "", err
	}
	more, err := injected(files)
	if err != nil {
		return "", err
	}
	path := filepath.Join(vm.dir, "initrd")
	return path, os.WriteFile(path, append(base, more...), 0o600)
}

func qemuArgs(x arch, im *Image, o VMOptions, dir, initrd string) []string {
	if o.MemoryMB == 0 {
		o.MemoryMB = 512
	}
	if o.CPUs == 0 {
		o.CPUs = 2
	}
	if o.DiskCache == "" {
		o.DiskCache = "unsafe"
	}
	clock := "utc"
	if !o.Date.IsZero() {
		clock = o.Date.UTC().Format("2006-01-02T15:04:05")
	}
	cmdline := strings.TrimSpace("console=" + x.console + " loglevel=4 psi=1 panic=-1 " + x.kernelArgs + im.cmdline + " " + o.ExtraCmdline)
	boot := []string{"-kernel", im.Kernel, "-append", cmdline}
	if initrd != "" {
		boot = append(boot, "-initrd", initrd)
	}
	return slices.Concat(x.machine, boot, []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", "tcg,thread=multi", "-smp", fmt.Sprint(o.CPUs), "-m", fmt.Sprint(o.MemoryMB),
		"-rtc", "base=" + clock,
		"-chardev", "socket,id=console,path=" + filepath.Join(dir, "console"), "-serial", "chardev:console",
		"-chardev", "socket,id=control,path=" + filepath.Join(dir, "control"),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=control,name=tinylet.control",
		"-drive", "if=none,id=root,format=qcow2,discard=unmap,cache=" + o.DiskCache + ",file=" + o.Disk,
		"-device", "virtio-blk-pci,drive=root",
	}, o.networkArgs(), []string{
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
	})
}

// WaitBooted blocks until the board's init has started all services.
func (vm *VM) WaitBooted(ctx context.Context) error {
	_, err := vm.Shell(ctx, "until [ -e /run/board/booted ]; do sleep 0.2; done")
	return err
}

// WaitContainerd blocks until containerd answers.
func (vm *VM) WaitContainerd(ctx context.Context) error {
	_, err := vm.Shell(ctx, "until ctr version > /dev/null 2>&1; do sleep 0.5; done")
	return err
}

// Ended is closed when the board has ended: powered off, reset or killed.
func (vm *VM) Ended() <-chan struct{} { return vm.ended }

// Kill cuts the board's power: nothing is written any more. It returns when
// the machine is gone.
func (vm *VM) Kill() {
	if vm.cmd != nil && vm.cmd.Process != nil {
		_ = vm.cmd.Process.Kill() // it may have ended
	}
	<-vm.ended
}

// Shutdown powers the board off in an orderly way and waits until it is gone.
func (vm *VM) Shutdown(ctx context.Context) error {
	if _, err := vm.Run(ctx, "poweroff"); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	select {
	case <-vm.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut the board down: %w", context.Cause(ctx))
	}
}

// Close kills the board if it still runs and removes its temporary files.
func (vm *VM) Close() error {
	vm.Kill()
	vm.wg.Wait()
	_ = vm.hold.Close()
	if err := os.RemoveAll(vm.dir); err != nil {
		return fmt.Errorf("remove the board's files: %w", err)
	}
	return nil
}

// lastWords returns what explains a failed start.
func (vm *VM) lastWords() string {
	s := ""
	if m := strings.TrimSpace(vm.said.String()); m != "" {
		s += "\nQEMU: " + m
	}
	if m := strings.TrimSpace(vm.console.log.String()); m != "" {
		s += "\nconsole: " + tail(m, 3000)
	}
	return s
}
