package cni

import (
	"net"
	"net/netip"
)

// Network implements the verbs. An error with a code for the runtime is an *Error or wraps
// one. Any other error has CodeInternal, those of Status CodePluginNotAvailable. Several
// processes may call a Network at the same time for different attachments.
type Network interface {
	// Setup attaches a container, or returns the existing attachment. If it fails, it
	// removes what it has created.
	Setup(Attachment) (Result, error)
	// Check returns an error if an attachment differs from what Setup has created. The
	// result is that of the last plugin in the list, so that it may have more than Setup
	// returned.
	Check(Attachment, *Result) error
	// Teardown releases all that an attachment holds. An attachment that does not exist is
	// no error, nor is an empty NetNS. The configuration has the fields that could be
	// read. containerd treats an error with the text "not found" as success.
	Teardown(Attachment) error
	// Collect releases what attachments to a network hold that are not among the valid
	// ones. It continues after an error.
	Collect(network string, valid []ID) error
	// Status returns an error if Setup could not succeed now.
	Status() error
}

// ID identifies an attachment to a network.
type ID struct {
	// ContainerID is the runtime's ID of the container: letters, digits and ._- only.
	ContainerID string
	// Interface is the name of the interface in the container.
	Interface string
}

// Owner returns the ID as one string. A container ID has no slash.
func (id ID) Owner() string { return id.ContainerID + "/" + id.Interface }

// Attachment describes one interface of one container, as requested by the runtime. All
// fields are validated except that NetNS may be no network namespace.
type Attachment struct {
	ID
	// NetNS is the path of the network namespace. For DEL it is "" if the namespace does
	// not exist, or is the plugin's own.
	NetNS string
	// Pod identifies the pod; each field may be "".
	Pod Pod
	// Config is the configuration of the network.
	Config Config
	// Ports are the host ports of the container, without duplicates.
	Ports []Port
	// Bandwidth is the bandwidth limit of the interface.
	Bandwidth Bandwidth
	// IPs are the requested addresses, if any.
	IPs []netip.Addr
	// MAC is the requested MAC address, six bytes and unicast, or nil.
	MAC net.HardwareAddr
}

// Pod is the pod to whose sandbox the container belongs.
type Pod struct {
	Namespace, Name, UID string
}

// Port maps a port of the host to one of the container.
type Port struct {
	// HostPort and ContainerPort are not 0.
	HostPort, ContainerPort uint16
	// Protocol is "tcp", "udp" or "sctp".
	Protocol string
	// HostIP is the address of the host. An unspecified address (0.0.0.0, ::) is all
	// addresses of its family, and the zero Addr is all addresses.
	HostIP netip.Addr
}

// Bandwidth limits what the container receives (ingress) and sends (egress). Rates are in
// bits per second, bursts in bits. A rate of 0 is no limit. With a burst of 0 the network
// chooses one; containerd requests 2³²-1.
type Bandwidth struct {
	IngressRate, IngressBurst, EgressRate, EgressBurst uint64
}
