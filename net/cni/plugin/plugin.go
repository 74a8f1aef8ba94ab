// Package plugin owns the CNI plugin process: it executes the verbs of net/cni with
// net/podnet, in the network namespace of the process. It keeps nothing open after a call:
// the state is the bridge, the rules and the leases.
package plugin

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// Run executes one call of a runtime and returns the exit code of the process.
func Run(env func(string) string, stdin io.Reader, stdout, stderr io.Writer) (exit int) {
	return cni.Call{Env: env, Stdin: stdin, Stdout: stdout, Stderr: stderr}.Run(open)
}

// open opens the network of a configuration.
func open(c cni.Config) (cni.Network, error) {
	n, err := podnet.New(c)
	if err != nil {
		return nil, err
	}
	return &network{n}, nil
}

// network implements cni.Network with podnet.
type network struct{ pods *podnet.Network }

// Setup implements cni.Network.
func (n *network) Setup(a cni.Attachment) (cni.Result, error) {
	r, err := n.pods.Setup(podOf(&a))
	if errors.As(err, new(ipam.ErrExhausted)) {
		err = &cni.Error{Code: cni.CodeTryAgainLater, Msg: "the range of pod addresses is exhausted", Err: err}
	}
	if err != nil {
		return cni.Result{}, err
	}
	out := cni.Result{Interfaces: []cni.Interface{r.Bridge, r.Host, r.Inside}}
	for i, address := range r.Addresses {
		out.IPs = append(out.IPs, cni.IP{Interface: 2, Address: address, Gateway: r.Gateways[i]})
		out.Routes = append(out.Routes, cni.Route{Dst: link.DefaultDestination(address.Addr()), Gateway: r.Gateways[i]})
	}
	return out, nil
}

// Check implements cni.Network. It also compares the addresses of the result with those of
// the pod's lease.
func (n *network) Check(a cni.Attachment, prev *cni.Result) error {
	if err := n.pods.Check(podOf(&a)); err != nil {
		return err
	}
	entry, err := n.pods.Entry(a.ID)
	if err != nil {
		return err
	}
	for _, ip := range prev.IPs {
		if i := ip.Interface; i >= 0 && prev.Interfaces[i].Name == a.Interface && !slices.Contains(entry.Addresses, ip.Address.Addr()) {
			return fmt.Errorf("check network of %s: address %v is not in its lease", a.ContainerID, ip.Address.Addr())
		}
	}
	return nil
}

// Teardown implements cni.Network. It needs only the ID and the configuration's StateDir.
func (n *network) Teardown(a cni.Attachment) error {
	return n.pods.Teardown(a.ID)
}

// Collect implements cni.Network. The leases do not record the network, so that it collects
// the attachments to all networks with the same StateDir.
func (n *network) Collect(_ string, valid []cni.ID) error {
	_, err := n.pods.Collect(func(e podnet.Entry) bool { return slices.Contains(valid, e.ID) })
	return err
}

// Status implements cni.Network.
func (n *network) Status() error { return n.pods.Ready() }

func podOf(a *cni.Attachment) podnet.Pod {
	p := podnet.Pod{
		ID: a.ID, NetNS: a.NetNS,
		Namespace: a.Pod.Namespace, Name: a.Pod.Name, UID: a.Pod.UID,
		Ingress:   link.Rate{BitsPerSecond: a.Bandwidth.IngressRate, BurstBits: a.Bandwidth.IngressBurst},
		Egress:    link.Rate{BitsPerSecond: a.Bandwidth.EgressRate, BurstBits: a.Bandwidth.EgressBurst},
		Addresses: a.IPs, MAC: a.MAC,
	}
	for _, port := range a.Ports {
		p.Ports = append(p.Ports, nft.Port{HostIP: port.HostIP, Protocol: protocols[port.Protocol], Host: port.HostPort, Target: port.ContainerPort})
	}
	return p
}

var protocols = map[string]nft.Protocol{"tcp": nft.TCP, "udp": nft.UDP, "sctp": nft.SCTP}
