package link

import (
	"fmt"
	"hash/fnv"
	"net"

	"golang.org/x/sys/unix"
)

// ValidName says why a link cannot have this name (dev_valid_name in
// net/core/dev.c), nil if it can: 1 to 15 bytes without slash, colon and white
// space, not "." or "..". A percent sign would make the kernel choose a name
// by a pattern, and control characters spoil logs.
func ValidName(name string) error {
	if name == "" || len(name) >= unix.IFNAMSIZ {
		return fmt.Errorf("interface name %.40q: it has %d bytes where 1 to %d are allowed", name, len(name), unix.IFNAMSIZ-1)
	}
	if name == "." || name == ".." {
		return fmt.Errorf("interface name %q is a folder's", name)
	}
	for i := range len(name) {
		switch c := name[i]; {
		// 0xa0 is a space to the kernel, which has Latin 1.
		case c <= ' ', c == 0x7f, c == 0xa0, c == '/', c == ':', c == '%':
			return fmt.Errorf("interface name %q: byte %#x is not allowed", name, c)
		}
	}
	return nil
}

// StableMAC makes a locally administered unicast address of a seed, always the
// same. A pod's, made of its IP address, spares the neighbours a stale entry
// where a new pod has the address of an old one.
func StableMAC(seed string) net.HardwareAddr {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	mac := net.HardwareAddr(h.Sum(nil)[:6])
	mac[0] = mac[0]&^1 | 2
	return mac
}
