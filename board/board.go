// Package board identifies the board that the system runs on, from the device
// tree that the firmware passes to the kernel. It does not depend on Kubernetes.
package board

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Model describes a board. Its strings come from the firmware: they have only
// printable ASCII characters and are otherwise untrusted.
type Model struct {
	// Name is the device tree's model, such as "Raspberry Pi 3 Model B".
	Name string `json:"name"`
	// Vendor is the part before the comma of the first compatible string,
	// such as "raspberrypi".
	Vendor string `json:"vendor"`
	// RaspberryPi is true for all Raspberry Pi boards, compute modules and the
	// Zero included. Their firmware reads config.txt and cmdline.txt.
	RaspberryPi bool `json:"raspberryPi"`
	// Compatible has the compatible strings of the root node, the most specific
	// first.
	Compatible []string `json:"compatible"`
}

// ErrNoDeviceTree means that the system has no device tree, such as a PC or a
// virtual machine that boots with ACPI.
var ErrNoDeviceTree = errors.New("the system has no device tree")

// maxProperty is the maximum number of bytes that are read of one property.
const maxProperty = 4096

// directories are where the kernel exports the device tree. /proc/device-tree is
// a link to the second one (Documentation/ABI/testing/sysfs-firmware-ofw).
var directories = []string{"proc/device-tree", "sys/firmware/devicetree/base"}

// Identify reads the model from the device tree under root, which is "/" or a
// captured tree. It returns ErrNoDeviceTree if there is no device tree. If only
// one of the properties model and compatible can be read, it returns that one.
func Identify(root string) (Model, error) {
	var first error
	for _, dir := range directories {
		m, err := identify(filepath.Join(root, dir))
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

func identify(dir string) (Model, error) {
	model, modelErr := property(filepath.Join(dir, "model"))
	compatible, compatibleErr := property(filepath.Join(dir, "compatible"))
	if modelErr != nil && compatibleErr != nil {
		if errors.Is(modelErr, fs.ErrNotExist) && errors.Is(compatibleErr, fs.ErrNotExist) {
			return Model{}, ErrNoDeviceTree
		}
		return Model{}, fmt.Errorf("identify board: %w", errors.Join(modelErr, compatibleErr))
	}
	return modelOf(model, compatible), nil
}

// modelOf returns the Model for the two raw properties.
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

// isRaspberryPi checks the vendor prefix of the compatible strings, or the name
// if there are none. A board of another vendor with the same processor
// (brcm,bcm2837) is no Raspberry Pi.
func isRaspberryPi(m Model) bool {
	if len(m.Compatible) == 0 {
		return strings.HasPrefix(m.Name, "Raspberry Pi")
	}
	return slices.ContainsFunc(m.Compatible, func(c string) bool { return strings.HasPrefix(c, "raspberrypi,") })
}

// property reads at most maxProperty bytes of a property.
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

// stringList splits a device tree property into its strings, each of which ends
// with a NUL (Devicetree Specification, 2.2.4.1). It omits empty strings.
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

// printable is the mapping for strings.Map that drops all but printable ASCII.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return -1
	}
	return r
}
