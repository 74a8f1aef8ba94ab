package native

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// PodNetwork connects sandboxes with net/podnet. It keeps nothing open between calls, like the
// CNI plugin, so that both can work on a node: pods that one has connected, the other
// disconnects.
type PodNetwork struct {
	// Config returns the configuration of new pods.
	Config func() (cni.Config, error)
}

// The annotations with the bandwidths of a pod.
const (
	annotationIngress = "kubernetes.io/ingress-bandwidth"
	annotationEgress  = "kubernetes.io/egress-bandwidth"
)

// podInterface is the name of a pod's interface, which is part of the ID of its network.
const podInterface = "eth0"

// open opens the network for one call.
func (n PodNetwork) open(do func(*podnet.Network) error) error {
	config, err := n.Config()
	if err != nil {
		return err
	}
	network, err := podnet.New(config)
	if err != nil {
		return err
	}
	return errors.Join(do(network), network.Close())
}

// Setup implements Network. ctx is not used: podnet blocks on the kernel alone.
func (n PodNetwork) Setup(_ context.Context, sandboxID, netns string, c *runtimeapi.PodSandboxConfig) (ips []string, err error) {
	pod := podnet.Pod{
		ID: cni.ID{ContainerID: sandboxID, Interface: podInterface}, NetNS: netns,
		Namespace: c.GetMetadata().GetNamespace(), Name: c.GetMetadata().GetName(), UID: c.GetMetadata().GetUid(),
	}
	if pod.Ports, err = hostPorts(c.GetPortMappings()); err != nil {
		return nil, fmt.Errorf("set up network of sandbox %q: %w", sandboxID, err)
	}
	if pod.Ingress, err = bandwidth(c.GetAnnotations(), annotationIngress); err != nil {
		return nil, fmt.Errorf("set up network of sandbox %q: %w", sandboxID, err)
	}
	if pod.Egress, err = bandwidth(c.GetAnnotations(), annotationEgress); err != nil {
		return nil, fmt.Errorf("set up network of sandbox %q: %w", sandboxID, err)
	}
	err = n.open(func(network *podnet.Network) error {
		r, err := network.Setup(pod)
		for _, a := range ipv4First(r.Addresses) {
			ips = append(ips, a.Addr().String())
		}
		return err
	})
	return ips, err
}

// Teardown implements Network. A configuration that cannot be read must not keep a pod.
func (n PodNetwork) Teardown(_ context.Context, sandboxID, _ string, _ *runtimeapi.PodSandboxConfig) error {
	withDefault := PodNetwork{Config: func() (cni.Config, error) {
		config, err := n.Config()
		if err != nil {
			config = cni.Default()
		}
		return config, nil
	}}
	return withDefault.open(func(network *podnet.Network) error {
		return network.Teardown(cni.ID{ContainerID: sandboxID, Interface: podInterface})
	})
}

// Problem implements Network.
func (n PodNetwork) Problem(context.Context) error {
	return n.open(func(network *podnet.Network) error { return network.Ready() })
}

// ipv4First returns the first address of IPv4, and then the others (selectPodIPs in
// containerd's internal/cri/server/sandbox_run.go).
func ipv4First(all []netip.Prefix) []netip.Prefix {
	first := slices.IndexFunc(all, func(p netip.Prefix) bool { return p.Addr().Is4() })
	if first <= 0 {
		return all
	}
	return slices.Concat(all[first:first+1], all[:first], all[first+1:])
}

// hostPorts returns the ports that are published on the node.
func hostPorts(mappings []*runtimeapi.PortMapping) ([]nft.Port, error) {
	protocols := map[runtimeapi.Protocol]nft.Protocol{runtimeapi.Protocol_TCP: nft.TCP, runtimeapi.Protocol_UDP: nft.UDP, runtimeapi.Protocol_SCTP: nft.SCTP}
	var out []nft.Port
	for _, m := range mappings {
		if m.GetHostPort() <= 0 {
			continue
		}
		const maxPort = 1<<16 - 1
		protocol, known := protocols[m.GetProtocol()]
		if !known || m.GetHostPort() > maxPort || m.GetContainerPort() <= 0 || m.GetContainerPort() > maxPort {
			return nil, fmt.Errorf("host port %d of container port %d and protocol %s is invalid", m.GetHostPort(), m.GetContainerPort(), m.GetProtocol())
		}
		port := nft.Port{Protocol: protocol, Host: uint16(m.GetHostPort()), Target: uint16(m.GetContainerPort())}
		if ip := m.GetHostIp(); ip != "" {
			a, err := netip.ParseAddr(ip)
			if err != nil {
				return nil, fmt.Errorf("host port %d: %w", m.GetHostPort(), err)
			}
			port.HostIP = a
		}
		if !slices.Contains(out, port) {
			out = append(out, port)
		}
	}
	return out, nil
}

// Limits of the bandwidth in bits per second (validateBandwidthIsReasonable in containerd's
// internal/cri/bandwidth/utils.go).
const (
	minBandwidth = 1_000
	maxBandwidth = 1_000_000_000_000_000
)

// bandwidth returns the limit of an annotation.
func bandwidth(annotations map[string]string, key string) (link.Rate, error) {
	text, ok := annotations[key]
	if !ok {
		return link.Rate{}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return link.Rate{}, fmt.Errorf("annotation %s: %q: %w", key, text, err)
	}
	if v := q.Value(); v < minBandwidth || v > maxBandwidth {
		return link.Rate{}, fmt.Errorf("annotation %s: %q is not within 1k and 1P", key, text)
	}
	return link.Rate{BitsPerSecond: uint64(q.Value()), BurstBits: math.MaxUint32}, nil
}
