package cni

import (
	"net"
	"net/netip"
	"slices"
)

// LoopbackType is the type of the plugin that sets the loopback interface of a container
// up. containerd calls it for each sandbox with the interface name lo, unless
// use_internal_loopback of its CRI plugin is set.
const LoopbackType = "loopback"

// RunLoopback executes a call of the loopback plugin and returns the exit code of the
// process, 0 or 1. up sets the loopback interface in the network namespace at a path up;
// isUp reports whether it is up. DEL, GC and STATUS do nothing: the kernel removes the
// interface with its namespace.
func (c Call) RunLoopback(up func(netns string) error, isUp func(netns string) (bool, error)) (exit int) {
	return c.run(parseLoopback, func(i *invocation) ([]byte, error) { return i.runLoopback(up, isUp) })
}

// parseLoopback parses the fields of the loopback plugin: the version and the previous
// result. All other fields belong to other plugins.
func parseLoopback(data []byte) (*request, error) {
	d := &decoder{}
	r := &request{}
	d.document(data, func(at *location, value []byte) {
		switch at.key {
		case "cniVersion":
			r.config.CNIVersion = d.str(at, value)
		case "prevResult":
			if !isNull(value) {
				r.prevResult = value
			}
		}
	})
	return r, d.err
}

func (i *invocation) runLoopback(up func(string) error, isUp func(string) (bool, error)) ([]byte, error) {
	if i.verb != add && i.verb != check {
		return nil, nil
	}
	if i.configErr != nil {
		return nil, i.configErr
	}
	if err := checkVersion(i.verb, i.config.CNIVersion); err != nil {
		return nil, err
	}
	e, err := readEnvironment(i.env, i.verb)
	if err != nil {
		return nil, err
	}
	if i.verb == check {
		ready, err := isUp(e.netns)
		if err == nil && !ready {
			err = &Error{Code: CodeIOFailure, Msg: "the loopback interface is down"}
		}
		return nil, err
	}
	if err := up(e.netns); err != nil {
		return nil, err
	}
	if i.prevResult != nil {
		return slices.Concat(i.prevResult, []byte("\n")), nil
	}
	v, _ := parseVersion(i.config.CNIVersion)
	return encodeResult(v, loopbackResult(e.netns)), nil
}

// loopbackResult returns the addresses that the kernel assigns to a loopback interface that
// is up.
func loopbackResult(netns string) *Result {
	return &Result{
		Interfaces: []Interface{{Name: "lo", MAC: make(net.HardwareAddr, 6), Sandbox: netns}},
		IPs: []IP{
			{Interface: 0, Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 8)},
			{Interface: 0, Address: netip.PrefixFrom(netip.IPv6Loopback(), 128)},
		},
	}
}
