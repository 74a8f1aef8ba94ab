// Package board identifies the board that the system runs on, from the
// device tree that the firmware handed to the kernel. It knows nothing of
// Kubernetes.
package board

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Model is what a board says of itself. Its strings come from firmware: they
// are cut to printable characters, and are not to be trusted otherwise.
type Model struct {
	// Name is the device tree's model, such as "Raspberry Pi 3 Model B".
	Name string `json:"name"`
	// Vendor is the part before the comma of the first compatible string,
	// such as "raspberrypi".
	Vendor string `json:"vendor"`
	// RaspberryPi is true for all boards of that make, compute modules and
	// the Zero included, whose firmware reads config.txt and cmdline.txt.
	RaspberryPi bool `json:"raspberryPi"`
	// Compatible lists what the board is compatible with, the most specific
	// first.
	Compatible []string `json:"compatible"`
}

// ErrNoDeviceTree says that the system has none: a PC, or a virtual machine
// that boots by ACPI.
var ErrNoDeviceTree = errors.New("the system has no device tree")

// maxProperty bounds what is read of one property, in bytes.
const maxProperty = 4096

// folders are where the kernel shows the device tree; /proc/device-tree is a
// link to the second one (Documentation/ABI/testing/sysfs-firmware-ofw).
var folders = []string{"proc/device-tree", "sys/firmware/devicetree/base"}

// Identify reads the model from the device tree under root, which is "/" or
// a captured tree. Without a device tree it fails with ErrNoDeviceTree; one
// that names only half of what it should gives what there is.
func Identify(root string) (Model, error) {
	var first error
	for _, folder := range folders {
		m, err := identify(filepath.Join(root, folder))
		if err == nil {
			return m, nil
		}
		if first == nil && !errors.Is(err, ErrNoDeviceTree) {
			first = err
		}
	}
	if first != nil {
		return Model{}, first
	}
	return Model{}, ErrNoDeviceTree
}

func identify(folder string) (Model, error) {
	model, modelErr := property(filepath.Join(folder, "model"))
	compatible, compatibleErr := property(filepath.Join(folder, "compatible"))
	if modelErr != nil && compatibleErr != nil {
		if errors.Is(modelErr, fs.ErrNotExist) && errors.Is(compatibleErr, fs.ErrNotExist) {
			return Model{}, ErrNoDeviceTree
		}
		return Model{}, fmt.Errorf("identify the board: %w", errors.Join(modelErr, compatibleErr))
	}
	return modelOf(model, compatible), nil
}

// modelOf makes a Model of the two raw properties.
func modelOf(model, compatible []byte) Model {
	m := Model{}
	if names := stringList(model); len(names) > 0 {
		m.Name = names[0]
	}
	m.Compatible = stringList(compatible)
	if len(m.Compatible) > 0 {
		if vendor, _, ok := strings.Cut(m.Compatible[0], ","); ok {
			m.Vendor = vendor
		}
	}
	m.RaspberryPi = isRaspberryPi(m)
	return m
}

// isRaspberryPi goes by the vendor prefix; by the name only where the tree
// has no compatible strings. A board that merely has the same processor
// (brcm,bcm2837) is none.
func isRaspberryPi(m Model) bool {
	for _, c := range m.Compatible {
		if strings.HasPrefix(c, "raspberrypi,") {
			return true
		}
	}
	return len(m.Compatible) == 0 && strings.HasPrefix(m.Name, "Raspberry Pi")
}

func property(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProperty))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	return b, nil
}

// stringList splits a device tree property into its strings, each of which
// ends with a NUL (Devicetree Specification, 2.2.4.1), and drops empty ones.
func stringList(b []byte) []string {
	var out []string
	for s := range strings.SplitSeq(string(b), "\x00") {
		s = strings.TrimSpace(strings.Map(printable, s))
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return -1
	}
	return r
}
