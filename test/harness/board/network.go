package board

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Network attaches a board's network card to a tap device on the host, instead
// of QEMU's own user network. Who uses one needs root.
type Network struct {
	Namespace string // network namespace that holds the tap; empty: that of this process
	Tap       string // device that exists already
	MAC       net.HardwareAddr
	Address   netip.Prefix // of the board, with the length of its network's prefix
	Gateway   netip.Addr   // may be the zero value: no default route
	Hostname  string       // of the board; empty: as in its image
}

// check says what a board could not start with.
func (n *Network) check() error {
	switch {
	case n.Tap == "":
		return errors.New("network without the name of a tap")
	case len(n.MAC) != 6:
		return fmt.Errorf("network with MAC address %q", n.MAC)
	case !n.Address.Addr().Is4():
		return fmt.Errorf("network with address %v: want one of IPv4", n.Address)
	}
	return nil
}

// checkNetworks says what a board could not start with.
func (o VMOptions) checkNetworks() error {
	for _, n := range []*Network{o.Network, o.Second} {
		if n == nil {
			continue
		}
		if err := n.check(); err != nil {
			return err
		}
	}
	if o.Second != nil && (o.Network == nil || o.Network.Namespace != o.Second.Namespace) {
		return errors.New("a second network without a first in the same namespace")
	}
	return nil
}

// command puts QEMU's command line into the tap's namespace. The program that
// enters it becomes QEMU, so that the process is still QEMU's.
func (n *Network) command(argv []string) ([]string, error) {
	if n == nil || n.Namespace == "" {
		return argv, nil
	}
	ip, err := findTool("ip")
	if err != nil {
		return nil, err
	}
	return append([]string{ip, "netns", "exec", n.Namespace}, argv...), nil
}

// networkArgs are QEMU's arguments for the network cards: the first is eth0.
func (o VMOptions) networkArgs() []string {
	if o.Network == nil {
		return []string{"-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,romfile="}
	}
	args := o.Network.qemuArgs("net")
	if o.Second != nil {
		args = append(args, o.Second.qemuArgs("net2")...)
	}
	return args
}

// qemuArgs are QEMU's arguments for a network card.
func (n *Network) qemuArgs(id string) []string {
	return []string{
		"-netdev", "tap,id=" + id + ",ifname=" + n.Tap + ",script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=" + id + ",romfile=,mac=" + n.MAC.String(),
	}
}

// files give the board its static address and its name.
func (n *Network) files() []File {
	if n == nil {
		return nil
	}
	var b strings.Builder
	b.WriteString("auto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet static\n")
	mask := net.IP(net.CIDRMask(n.Address.Bits(), 32))
	fmt.Fprintf(&b, "\taddress %s\n\tnetmask %s\n", n.Address.Addr(), mask)
	if n.Gateway.IsValid() {
		fmt.Fprintf(&b, "\tgateway %s\n", n.Gateway)
	}
	files := []File{{Path: "/etc/network/interfaces", Mode: 0o644, Data: []byte(b.String())}}
	if n.Hostname == "" {
		return files
	}
	return append(files,
		File{Path: "/etc/hostname", Mode: 0o644, Data: []byte(n.Hostname + "\n")},
		File{Path: "/etc/hosts", Mode: 0o644, Data: []byte("127.0.0.1 localhost\n127.0.1.1 " + n.Hostname + "\n")},
	)
}
