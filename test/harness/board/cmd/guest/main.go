// Command guest is the control program in a simulated board. The board's init
// starts it; it serves the test host over a virtio serial port.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tinylet/tinylet/test/harness/board/guest"
)

// portName is the name that the host gives to the control port.
const portName = "tinylet.control"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "board control:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	port, err := openPort(ctx, "/sys/class/virtio-ports", "/dev")
	stop() // from here on the signal ends the program
	if err != nil {
		return err
	}
	defer port.Close()
	return guest.Serve(port)
}

// openPort waits up to half a minute for the control port. The file is opened
// for blocking use: the port reports a hang-up to pollers while no host listens.
func openPort(ctx context.Context, sysDir, devDir string) (*os.File, error) {
	for range 300 {
		names, err := filepath.Glob(filepath.Join(sysDir, "*", "name"))
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			b, err := os.ReadFile(n)
			if err != nil || strings.TrimSpace(string(b)) != portName {
				continue
			}
			dev := filepath.Join(devDir, filepath.Base(filepath.Dir(n)))
			fd, err := syscall.Open(dev, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
			if err != nil {
				return nil, fmt.Errorf("open control port %s: %w", dev, err)
			}
			return os.NewFile(uintptr(fd), dev), nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, errors.New("no virtio port named " + portName)
}
