package podnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netlink"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/nft"
)

// defaultMTU is that of Ethernet, for a node without a way to the world.
const defaultMTU = 1500

// Setup gives a pod its network. Where an earlier call for the same ID was
// broken off, it goes on from what that has left. If it fails, nothing is left.
func (n *Network) Setup(p Pod) (Result, error) {
	r, err := n.setup(p)
	if err != nil {
		return Result{}, fmt.Errorf("set up the network of %s: %w", p.name(), errors.Join(err, n.Teardown(p.ID)))
	}
	return r, nil
}

func (p *Pod) name() string {
	if label := p.label(); label != "" {
		return label
	}
	return p.Owner()
}

func (n *Network) setup(p Pod) (Result, error) {
	ns, err := netns.Open(p.NetNS)
	if err != nil {
		return Result{}, err
	}
	defer ns.Close()
	host, err := link.Open()
	if err != nil {
		return Result{}, err
	}
	defer host.Close()
	lease, ports, err := n.lease(&p)
	if err != nil {
		return Result{}, err
	}
	n.did("lease")
	bridge, err := n.ready(host)
	if err != nil {
		return Result{}, err
	}
	n.did("bridge")
	if err := n.restrict(senderOf(lease)); err != nil {
		return Result{}, err
	}
	n.did("restricted")
	r, err := n.attach(host, ns, bridge, &p, lease)
	if err != nil {
		return Result{}, err
	}
	n.did("attached")
	return r, n.publish(ports)
}

// lease takes the pod's addresses, and writes down what is going to be made.
func (n *Network) lease(p *Pod) (ipam.Lease, []nft.Port, error) {
	if _, not := n.cfg.allowed(p.Ports); not != nil {
		return ipam.Lease{}, nil, &PortReserved{Port: not[0]}
	}
	l, err := n.leases.Take(ipam.Request{Owner: p.Owner(), Key: p.key(), Pod: p.label(), Ranges: n.cfg.Ranges, Wanted: p.Wanted})
	if err != nil {
		return l, nil, err
	}
	ports, err := p.portsOf(l.Addresses)
	if err != nil {
		return l, nil, err
	}
	data, err := detail{NetNS: p.NetNS, Ports: ports, MAC: p.MAC}.encode()
	if err != nil {
		return l, nil, err
	}
	l.Detail = data
	return l, ports, n.leases.Amend(p.Owner(), data)
}

// ready is the bridge, made if there is none or something is missing of it.
func (n *Network) ready(host *link.Handle) (link.Link, error) {
	if l, ok := n.isReady(host); ok {
		return l, nil
	}
	if err := n.ensureHost(host, n.ensureRules); err != nil {
		return link.Link{}, err
	}
	return host.Link(n.cfg.Bridge)
}

func (n *Network) isReady(host *link.Handle) (link.Link, bool) {
	l, err := host.Link(n.cfg.Bridge)
	if err != nil || l.Kind != "bridge" || !l.Up || l.Promiscuous != n.cfg.Promiscuous {
		return l, false
	}
	have, err := host.Addresses(l.Index)
	if err != nil {
		return l, false
	}
	for _, want := range n.cfg.bridge().Addresses {
		found := false
		for _, a := range have {
			found = found || a.Prefix == want
		}
		if !found {
			return l, false
		}
	}
	return l, true
}

// attach makes the pair of interfaces and what the pod's end needs.
func (n *Network) attach(host *link.Handle, ns *os.File, bridge link.Link, p *Pod, lease ipam.Lease) (Result, error) {
	sender := senderOf(lease)
	name, mac := sender.Port, sender.MAC
	veth := link.Veth{
		Name: name, MTU: n.mtu(host), Bridge: bridge.Index, Hairpin: n.cfg.Hairpin,
		Alias: alias + p.name(), Peer: link.Peer{Name: p.Interface, NS: ns, MAC: mac},
	}
	veth.Alias = veth.Alias[:min(len(veth.Alias), 255)]
	err := host.CreateVeth(veth)
	if errors.Is(err, link.ErrExists) {
		// A call that was broken off has left it.
		if err = host.DeleteLink(name); err == nil {
			err = host.CreateVeth(veth)
		}
	}
	if err != nil {
		return Result{}, err
	}
	n.did("veth")
	r, err := n.furnish(ns, p, lease, mac)
	if err != nil {
		return Result{}, err
	}
	end, err := host.Link(name)
	if err != nil {
		return Result{}, err
	}
	if p.Ingress.BitsPerSecond != 0 {
		// What the host sends out here is what the pod gets.
		if err := host.Shape(end.Index, p.Ingress); err != nil {
			return Result{}, err
		}
	}
	r.Bridge = Interface{bridge.Name, bridge.MAC, bridge.MTU}
	r.Host = Interface{end.Name, end.MAC, end.MTU}
	return r, nil
}

// mtu is that of a new pod.
func (n *Network) mtu(host *link.Handle) int {
	if n.cfg.MTU != 0 {
		return n.cfg.MTU
	}
	if up, err := host.Uplink(); err == nil && up.Link.MTU != 0 {
		return up.Link.MTU
	}
	return defaultMTU
}

// furnish sets up the pod's end.
func (n *Network) furnish(ns *os.File, p *Pod, lease ipam.Lease, mac net.HardwareAddr) (Result, error) {
	r := Result{}
	for _, a := range lease.Addresses {
		in, ok := n.cfg.rangeOf(a)
		if !ok {
			return r, fmt.Errorf("address %v is of no range", a)
		}
		r.Addresses = append(r.Addresses, netip.PrefixFrom(a, in.Prefix.Bits()))
		r.Gateways = append(r.Gateways, in.Gateway)
	}
	// Other pods on the bridge must not tell this one where the world is.
	// Its link-local address has to be the one that it may send from.
	if err := netlink.In(ns, func() error {
		return errors.Join(ignoreAbsent(link.SetSysctl(conf6+"/"+p.Interface+"/accept_ra", "0")),
			ignoreAbsent(link.SetSysctl(conf6+"/"+p.Interface+"/addr_gen_mode", "0")))
	}); err != nil {
		return r, err
	}
	inside, err := link.OpenIn(ns)
	if err != nil {
		return r, err
	}
	defer inside.Close()
	l, err := inside.Configure(link.Inside{Interface: p.Interface, Addresses: r.Addresses, Gateways: r.Gateways})
	if err != nil {
		return r, err
	}
	if p.Egress.BitsPerSecond != 0 {
		if err := inside.Shape(l.Index, p.Egress); err != nil {
			return r, err
		}
	}
	r.Inside = Interface{p.Interface, mac, l.MTU}
	return r, nil
}

// ignoreAbsent is for settings of a kernel without IPv6.
func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// publish sees that the rules are there, and gives the pod its ports.
func (n *Network) publish(ports []nft.Port) error {
	table, err := nft.Open()
	if err != nil {
		return err
	}
	defer table.Close()
	if err := n.ensureRules(table); err != nil {
		return errors.Join(err, closeUnguarded(table, n.cfg.Bridge))
	}
	n.did("table")
	if err := n.openLocalhost(); err != nil {
		return err
	}
	if len(ports) == 0 {
		return nil
	}
	if err := checkFree(ports); err != nil {
		return err
	}
	return table.AddPorts(ports)
}
