package machine

import (
	"cmp"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Info identifies a machine, its boot and its software. A string is "" if the machine
// does not report it, or if its value is too long or not printable.
// No field is needed to register a node.
type Info struct {
	// MachineID identifies the installation (machine-id(5)).
	MachineID string
	// SystemUUID identifies the hardware. It is the UUID of the firmware (SMBIOS), or
	// else an ID in the device tree, such as the serial number of the board, or else
	// the machine ID, as with a kubelet.
	SystemUUID string
	// BootID changes with every boot (random(4)).
	BootID string
	// KernelVersion is the kernel's release, as in uname -r.
	KernelVersion string
	// OSImage is the human-readable name of the distribution (os-release(5)).
	OSImage string
	// Swap is the size of all swap areas in bytes.
	Swap int64
}

// ReadInfo reads about ten small files below the roots. It is safe for concurrent use.
//
// The paths are those of github.com/google/cadvisor, which the kubelet uses:
// machine/info.go, machine/operatingsystem_unix.go and utils/sysfs/sysfs.go. The
// serial number in the device tree is an addition: boards that were flashed with
// one image share its machine ID.
func ReadInfo(r Roots) Info {
	machineID := first(filepath.Join(r.root(), "etc/machine-id"), filepath.Join(r.root(), "var/lib/dbus/machine-id"))
	tree := filepath.Join(r.proc(), "device-tree")
	hardwareID := first(
		filepath.Join(r.sys(), "class/dmi/id/product_uuid"),
		filepath.Join(tree, "system-id"), // of POWER, as is the next
		filepath.Join(tree, "vm,uuid"),
		filepath.Join(tree, "serial-number"), // of ARM boards (Documentation/devicetree/bindings/arm of Linux)
	)
	return Info{
		MachineID:     machineID,
		SystemUUID:    cmp.Or(hardwareID, machineID),
		BootID:        BootID(r),
		KernelVersion: KernelVersion(),
		OSImage:       osImage(r),
		Swap:          Swap(r),
	}
}

// BootID returns Info.BootID.
func BootID(r Roots) string {
	return identity(readSmall(filepath.Join(r.proc(), "sys/kernel/random/boot_id")))
}

// first returns the identity in the first of the files that holds one, or "".
func first(files ...string) string {
	for _, file := range files {
		if id := identity(readSmall(file)); id != "" {
			return id
		}
	}
	return ""
}

// maxIdentity bounds an identity, in bytes. A UUID has 36.
const maxIdentity = 128

// identity returns the identity in the text of a file. It returns "" for text that is
// too long or has other characters than printable ASCII, for a machine ID that the
// first boot has not set yet, and for a serial number of zeros, which was never
// programmed.
func identity(text string) string {
	text = strings.Trim(text, " \t\r\n\x00")
	if len(text) > maxIdentity || text == "uninitialized" || strings.Trim(text, "0-") == "" ||
		strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	return text
}

// KernelVersion returns Info.KernelVersion.
func KernelVersion() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return identity(unix.ByteSliceToString(name.Release[:]))
}
