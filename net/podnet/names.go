package podnet

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
)

// ID says whose a network is: a container, as the runtime names its sandbox,
// and the interface in it.
type ID struct {
	Container, Interface string
}

// Owner is the ID as one text. A container's name has no slash.
func (id ID) Owner() string { return id.Container + "/" + id.Interface }

// idOf reads an Owner.
func idOf(owner string) ID {
	container, name, _ := strings.Cut(owner, "/")
	return ID{container, name}
}

// alias begins the alias of each interface on the host's side: by it those that
// this package has made are known.
const alias = "tinylet:"

// hostName is the name of the interface on the host's side. It is the same each
// time, so that one that a killed call left is found again. "veth" is what
// network managers leave alone.
func hostName(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return "veth" + hex.EncodeToString(sum[:5])
}

// macOf is the MAC address of a pod by its first address: who has cached the
// one knows the other, also when the address goes to another pod.
func macOf(address netip.Addr) net.HardwareAddr {
	if address.Is4() {
		a := address.As4()
		return net.HardwareAddr{0x0a, 0x58, a[0], a[1], a[2], a[3]}
	}
	a := address.As16()
	sum := sha256.Sum256(a[:])
	return net.HardwareAddr{0x0a, 0x58, sum[0], sum[1], sum[2], sum[3]}
}
