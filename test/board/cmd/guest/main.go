// Command guest is the control program in a simulated board. The board's init
// starts it; it serves the test host over a virtio serial port.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tinylet/tinylet/test/board/guest"
)

// portName is the name that the host gives to the control port.
const portName = "tinylet.control"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "board control:", err)
		os.Exit(1)
	}
}

func run() error {
	port, err := openPort("/sys/class/virtio-ports", "/dev")
	if err != nil {
		return err
	}
	defer port.Close()
	return guest.Serve(port)
}

// openPort waits up to half a minute for the control port. The file is opened
// for blocking use: the port reports a hang-up to pollers while no host listens.
func openPort(sysDir, devDir string) (*os.File, error) {
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
		time.Sleep(100 * time.Millisecond)
	}
	return nil, errors.New("no virtio port named " + portName)
}
