package podnet

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"

	"github.com/tinylet/tinylet/net/cni"
)

// idOf parses the Owner of an ID.
func idOf(owner string) cni.ID {
	container, name, _ := strings.Cut(owner, "/")
	return cni.ID{ContainerID: container, Interface: name}
}

// alias is the prefix of the aliases of host interfaces that this package creates.
const alias = "tinylet:"

// hostName returns the name of the host interface. It depends on the owner alone, so
// that the interface of a killed call is found again. Network managers ignore
// interfaces with the prefix veth.
func hostName(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return "veth" + hex.EncodeToString(sum[:5])
}

// macOf returns the MAC address for a pod's first address. Neighbours with a cached
// entry reach the next pod with that address too.
func macOf(address netip.Addr) net.HardwareAddr {
	if address.Is4() {
		a := address.As4()
		return net.HardwareAddr{0x0a, 0x58, a[0], a[1], a[2], a[3]}
	}
	a := address.As16()
	sum := sha256.Sum256(a[:])
	return net.HardwareAddr{0x0a, 0x58, sum[0], sum[1], sum[2], sum[3]}
}
