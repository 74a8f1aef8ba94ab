package link

import (
	"fmt"
	"hash/fnv"
	"net"

	"golang.org/x/sys/unix"
)

// ValidName returns why a link cannot have a name, nil if it can. The kernel accepts
// 1 to 15 bytes without slash, colon and white space, but not "." and ".."
// (dev_valid_name in net/core/dev.c). A percent sign is rejected, because it makes
// the kernel choose a name by a pattern. Control characters are rejected because of
// logs.
func ValidName(name string) error {
	if name == "" || len(name) >= unix.IFNAMSIZ {
		return fmt.Errorf("interface name %.40q has %d bytes, want 1 to %d", name, len(name), unix.IFNAMSIZ-1)
	}
	if name == "." || name == ".." {
		return fmt.Errorf("interface name %q is the name of a directory", name)
	}
	for i := range len(name) {
		switch c := name[i]; {
		// The kernel uses Latin 1, in which 0xa0 is a space.
		case c <= ' ', c == 0x7f, c == 0xa0, c == '/', c == ':', c == '%':
			return fmt.Errorf("interface name %q contains byte %#x", name, c)
		}
	}
	return nil
}

// StableMAC returns a locally administered unicast address that depends on seed
// alone.
func StableMAC(seed string) net.HardwareAddr {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	mac := net.HardwareAddr(h.Sum(nil)[:6])
	mac[0] = mac[0]&^1 | 2
	return mac
}
