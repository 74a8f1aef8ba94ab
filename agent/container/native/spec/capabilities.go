package spec

import (
	"slices"
	"strings"
)

// defaultCapabilities returns a new list of what a container has by default
// (defaultUnixCaps in pkg/oci/spec.go).
func defaultCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL",
		"CAP_AUDIT_WRITE",
	}
}

// capabilities applies the added and dropped capabilities (WithCapabilities in
// opts/spec_opts.go). Ambient and inheritable ones stay empty. A container with added
// capabilities and another user than root so has them only in programs with file
// capabilities.
func (b *builder) capabilities() error {
	request := b.security.GetCapabilities()
	current := defaultCapabilities()
	added, all := capabilityNames(request.GetAddCapabilities())
	if all {
		current = slices.Clone(b.Node.Capabilities)
	}
	dropped, none := capabilityNames(request.GetDropCapabilities())
	if none {
		current = nil
	}
	// Whoever writes a pod decides how long the lists are, so no list is searched per element.
	skip := make(map[string]bool, len(dropped))
	for _, name := range dropped {
		skip[name] = true
	}
	var names []string
	for _, name := range slices.Concat(current, added) {
		if !skip[name] {
			names = append(names, name)
			skip[name] = true
		}
	}
	b.setCapabilities(names)
	return nil
}

func (b *builder) setCapabilities(names []string) {
	c := b.spec.Process.Capabilities
	c.Bounding, c.Permitted, c.Effective = slices.Clone(names), slices.Clone(names), slices.Clone(names)
}

// capabilityNames returns the kernel's names of CRI's, which have no prefix and any case, and
// whether one of them is ALL, which is not in names.
func capabilityNames(list []string) (names []string, all bool) {
	for _, name := range list {
		if strings.EqualFold(name, "ALL") {
			all = true
			continue
		}
		names = append(names, "CAP_"+strings.ToUpper(name))
	}
	return names, all
}

// privileged gives a privileged container all capabilities and devices and a writable /sys and
// cgroup tree (WithPrivileged, WithHostDevices and WithAllDevicesAllowed in pkg/oci). Paths and
// profiles are decided in paths, apparmor and seccomp.
func (b *builder) privileged() error {
	if !b.security.GetPrivileged() {
		return nil
	}
	b.setCapabilities(b.Node.Capabilities)
	for _, m := range b.spec.Mounts {
		if m.Type != "sysfs" && m.Type != "cgroup" {
			continue
		}
		for i, option := range m.Options {
			if option == "ro" {
				m.Options[i] = "rw"
			}
		}
	}
	return b.allowAllDevices()
}
