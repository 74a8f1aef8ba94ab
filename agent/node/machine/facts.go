package machine

import (
	"cmp"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Facts are what tells one machine, one boot of it and its software from
// others. Every text is "" where the machine does not tell it or tells
// something that no API server would take; none of them is needed to register
// a node.
type Facts struct {
	// MachineID is the installation's (machine-id(5)).
	MachineID string
	// SystemUUID is the hardware's: of the firmware (SMBIOS), else of the
	// device tree, which on a board without SMBIOS is its serial number, else
	// the machine ID, as with a kubelet.
	SystemUUID string
	// BootID changes with every boot (random(4)).
	BootID string
	// KernelVersion is the kernel's release, as uname -r tells it.
	KernelVersion string
	// OSImage is the distribution's name for people (os-release(5)).
	OSImage string
	// Swap is the size of all swap areas in bytes.
	Swap int64
}

// ReadFacts reads the facts from below the roots, some ten small files. It is
// safe for concurrent use.
//
// The places are those of github.com/google/cadvisor, by which the kubelet
// knows its machine: machine/info.go, machine/operatingsystem_unix.go and
// utils/sysfs/sysfs.go. The serial number in the device tree is added to
// them: boards that were flashed with one image share its machine ID.
func ReadFacts(r Roots) Facts {
	machineID := first(machineIDFiles(r))
	memory, _ := readMeminfo(r) // nothing, then
	return Facts{
		MachineID:     machineID,
		SystemUUID:    cmp.Or(first(hardwareIDFiles(r)), machineID),
		BootID:        identity(readSmall(filepath.Join(r.proc(), "sys/kernel/random/boot_id"))),
		KernelVersion: kernelVersion(),
		OSImage:       osImage(r),
		Swap:          int64(memory.swapTotal),
	}
}

func machineIDFiles(r Roots) []string {
	return []string{
		filepath.Join(r.root(), "etc/machine-id"),
		filepath.Join(r.root(), "var/lib/dbus/machine-id"),
	}
}

// hardwareIDFiles are the firmware's, then the device tree's: system-id and
// vm,uuid of POWER, serial-number of the boot loaders of ARM boards
// (Documentation/devicetree/bindings/arm of Linux).
func hardwareIDFiles(r Roots) []string {
	tree := filepath.Join(r.proc(), "device-tree")
	return []string{
		filepath.Join(r.sys(), "class/dmi/id/product_uuid"),
		filepath.Join(tree, "system-id"),
		filepath.Join(tree, "vm,uuid"),
		filepath.Join(tree, "serial-number"),
	}
}

// first is the first of the files that holds an identity, or "".
func first(files []string) string {
	for _, file := range files {
		if id := identity(readSmall(file)); id != "" {
			return id
		}
	}
	return ""
}

// maxIdentity bounds an identity, in bytes: a UUID has 36.
const maxIdentity = 128

// identity is what a file says that holds one identity, or "" for what is
// none: other characters than printable ASCII, a machine ID that the first
// boot has yet to set, a serial number that nobody burnt in.
func identity(text string) string {
	text = strings.Trim(text, " \t\r\n\x00")
	if len(text) > maxIdentity || text == "uninitialized" || strings.Trim(text, "0-") == "" {
		return ""
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return ""
		}
	}
	return text
}

func kernelVersion() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return identity(unix.ByteSliceToString(name.Release[:]))
}
