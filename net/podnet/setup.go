package podnet

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/nft"
)

// defaultMTU is Ethernet's, for a node without an uplink.
const defaultMTU = 1500

// Setup sets up the network of a pod. It completes what an interrupted call for the
// same ID has left. After an error it calls Teardown, also for a network that existed
// before; the error includes that of Teardown.
func (n *Network) Setup(p Pod) (Result, error) {
	r, err := n.setup(p)
	if err != nil {
		if failed := n.Teardown(p.ID); failed != nil {
			err = fmt.Errorf("%w; clean up: %w", err, failed)
		}
		return Result{}, fmt.Errorf("set up network of %s: %w", p.name(), err)
	}
	return r, nil
}

func (p *Pod) name() string { return cmp.Or(p.label(), p.Owner()) }

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

// lease allocates the pod's addresses, and records what is going to be created.
func (n *Network) lease(p *Pod) (ipam.Lease, []nft.Port, error) {
	if _, not := n.cfg.allowed(p.Ports); not != nil {
		return ipam.Lease{}, nil, &PortReserved{Port: not[0]}
	}
	l, err := n.leases.Allocate(ipam.Request{Owner: p.Owner(), Key: cmp.Or(p.UID, p.label()), Pod: p.label(), Ranges: n.cfg.Ranges, Addresses: p.Addresses})
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
	return l, ports, n.leases.SetDetail(p.Owner(), data)
}

// ready returns the bridge, and creates what is missing of the shared state.
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
	lacks := func(want netip.Prefix) bool {
		return !slices.ContainsFunc(have, func(a link.Address) bool { return a.Prefix == want })
	}
	return l, !slices.ContainsFunc(n.cfg.bridge().Addresses, lacks)
}

// attach creates the veth pair and configures both ends.
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
		// An interrupted call has left it.
		if err = host.DeleteLink(name); err == nil {
			err = host.CreateVeth(veth)
		}
	}
	if err != nil {
		return Result{}, err
	}
	n.did("veth")
	r, err := n.configureInside(ns, p, lease, mac)
	if err != nil {
		return Result{}, err
	}
	end, err := host.Link(name)
	if err != nil {
		return Result{}, err
	}
	if p.Ingress.BitsPerSecond != 0 {
		// What the host sends on its end is what the pod receives.
		if err := host.Shape(end.Index, p.Ingress); err != nil {
			return Result{}, err
		}
	}
	r.Bridge = cni.Interface{Name: bridge.Name, MAC: bridge.MAC, MTU: bridge.MTU}
	r.Host = cni.Interface{Name: end.Name, MAC: end.MAC, MTU: end.MTU}
	return r, nil
}

// mtu returns the MTU of a new pod.
func (n *Network) mtu(host *link.Handle) int {
	if n.cfg.MTU != 0 {
		return n.cfg.MTU
	}
	if up, err := host.Uplink(); err == nil && up.Link.MTU != 0 {
		return up.Link.MTU
	}
	return defaultMTU
}

// configureInside configures the pod's end.
func (n *Network) configureInside(ns *os.File, p *Pod, lease ipam.Lease, mac net.HardwareAddr) (Result, error) {
	r := Result{}
	for _, a := range lease.Addresses {
		in, ok := n.cfg.rangeOf(a)
		if !ok {
			return r, fmt.Errorf("address %v is in no range", a)
		}
		r.Addresses = append(r.Addresses, netip.PrefixFrom(a, in.Prefix.Bits()))
		r.Gateways = append(r.Gateways, in.Gateway)
	}
	inside, err := openInside(ns, p.Interface)
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
	r.Inside = cni.Interface{Name: p.Interface, MAC: mac, MTU: l.MTU, Sandbox: p.NetNS}
	return r, nil
}

// openInside opens the pod's namespace. Before the interface is up it must accept no
// router advertisements, which other pods on the bridge can send, and its link-local
// address must be the one that it may send from (EUI-64).
func openInside(ns *os.File, name string) (inside *link.Handle, err error) {
	err = netns.Do(ns, func() error {
		if err := errors.Join(ignoreAbsent(link.SetSysctl(conf6+"/"+name+"/accept_ra", "0")),
			ignoreAbsent(link.SetSysctl(conf6+"/"+name+"/addr_gen_mode", "0"))); err != nil {
			return err
		}
		inside, err = link.Open()
		return err
	})
	return inside, err
}

// ignoreAbsent returns nil for a sysctl of a kernel without IPv6, and for a lease that
// does not exist.
func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// publish ensures the rules and the sysctl for host ports on 127.0.0.1, and adds the pod's
// host ports.
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
