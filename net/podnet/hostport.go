package podnet

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/nft"
)

// PortInUse means that a process of the host uses a requested host port. The pod would
// receive the connections of that process.
type PortInUse struct{ Port nft.Port }

// Error names the port.
func (e *PortInUse) Error() string {
	return fmt.Sprintf("port %d/%v of the host is in use by a process of the host", e.Port.Host, e.Port.Protocol)
}

// PortReserved means that a requested host port is reserved for the node.
type PortReserved struct{ Port nft.Port }

// Error names the port.
func (e *PortReserved) Error() string {
	return fmt.Sprintf("port %d/%v of the host is reserved for the node: give the pod another hostPort", e.Port.Host, e.Port.Protocol)
}

// allowed divides ports into those that pods may have, and reserved ones, which an
// earlier configuration may have allowed.
func (c *config) allowed(ports []nft.Port) (may, not []nft.Port) {
	for _, p := range ports {
		if p.Protocol == nft.TCP && slices.Contains(c.Reserved, p.Host) {
			not = append(not, p)
		} else {
			may = append(may, p)
		}
	}
	return may, not
}

// checkFree checks that no process of the host uses the ports, in the network
// namespace of the calling thread. It binds each port for a moment.
func checkFree(ports []nft.Port) error {
	for _, p := range ports {
		// Other errors, such as those of an address that the host does not have yet or
		// of a kernel without SCTP, do not mean that another process uses the port.
		if errors.Is(bind(p), unix.EADDRINUSE) {
			return &PortInUse{Port: p}
		}
	}
	return nil
}

func bind(p nft.Port) error {
	domain, address := sockaddr(p)
	kind := unix.SOCK_STREAM
	if p.Protocol == nft.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, int(p.Protocol))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if domain == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return err
		}
	}
	if p.Protocol == nft.TCP {
		// Connections in TIME_WAIT do not use the port.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
	}
	return unix.Bind(fd, address)
}

// sockaddr returns the address on the host, which has the family of Pod.
func sockaddr(p nft.Port) (domain int, address unix.Sockaddr) {
	if p.Pod.Is6() {
		return unix.AF_INET6, &unix.SockaddrInet6{Port: int(p.Host), Addr: p.HostIP.As16()} // :: for the zero value
	}
	a := &unix.SockaddrInet4{Port: int(p.Host)}
	if p.HostIP.Is4() {
		a.Addr = p.HostIP.As4()
	}
	return unix.AF_INET, a
}
