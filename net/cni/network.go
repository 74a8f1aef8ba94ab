package cni

import (
	"net"
	"net/netip"
)

// Network is what the verbs act on. Errors that a runtime decides by are an
// *Error, also wrapped; any other is CodeInternal, or for Status
// CodeUnavailable. Several processes may be at it at once, for different
// attachments.
type Network interface {
	// Setup attaches a container, or says what is attached already, and takes
	// back what it has made where it fails.
	Setup(Attachment) (Result, error)
	// Check says what is wrong with an attachment. The result is that of the
	// last plugin in the list, so it may have more in it than Setup gave.
	Check(Attachment, *Result) error
	// Teardown releases all that an attachment holds. What is gone is no error,
	// nor is an empty NetNS; the configuration is what could be read of it.
	// containerd takes an error whose text has "not found" in it for success.
	Teardown(Attachment) error
	// Collect releases what any attachment to a network holds that is not among
	// the valid ones. It goes on past errors.
	Collect(network string, valid []ID) error
	// Status says why Setup could not work now: nil if it could.
	Status() error
}

// ID says which attachment to a network is meant.
type ID struct {
	ContainerID, Interface string
}

// Attachment is what a runtime says of one interface of one container. All of
// it is checked, but for NetNS, which may be no network namespace.
type Attachment struct {
	// ContainerID is the runtime's name for it: letters, digits and ._- only.
	ContainerID string
	// Interface is the name to give to the interface in the container.
	Interface string
	// NetNS is the path of the network namespace. It is "" at DEL where there is
	// none any more, or where the path leads to the plugin's own.
	NetNS string
	// Pod is for people to read; each field may be "".
	Pod Pod
	// Config is the network's.
	Config Config
	// Ports are those of the host that lead to the container, each once.
	Ports []Port
	// Bandwidth is the limit of the interface.
	Bandwidth Bandwidth
	// IPs are the addresses that are asked for, if any.
	IPs []netip.Addr
	// MAC is the address that is asked for, six bytes and unicast, or nil.
	MAC net.HardwareAddr
}

// ID is the attachment's.
func (a *Attachment) ID() ID { return ID{ContainerID: a.ContainerID, Interface: a.Interface} }

// Pod is whose sandbox the container is.
type Pod struct {
	Namespace, Name, UID string
}

// Port is a port of the host that leads to one of the container.
type Port struct {
	// HostPort and ContainerPort are not 0.
	HostPort, ContainerPort uint16
	// Protocol is "tcp", "udp" or "sctp".
	Protocol string
	// HostIP is the only address of the host to take, or any of its family if it
	// is unspecified (0.0.0.0, ::), or any at all if it is the zero Addr.
	HostIP netip.Addr
}

// Bandwidth limits what goes into the container and what comes out of it: rates
// in bits a second and bursts in bits. A rate of 0 is no limit; a burst of 0 is
// the network's choice, and containerd asks for 2³²-1.
type Bandwidth struct {
	IngressRate, IngressBurst, EgressRate, EgressBurst uint64
}
