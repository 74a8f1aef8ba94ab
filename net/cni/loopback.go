package cni

import (
	"net"
	"net/netip"
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
	switch i.verb {
	case add, check:
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
			return nil, checkLoopback(e.netns, isUp)
		}
		if err := up(e.netns); err != nil {
			return nil, err
		}
		if i.prevResult != nil {
			return append(append(make([]byte, 0, len(i.prevResult)+1), i.prevResult...), '\n'), nil
		}
		v, _ := parseVersion(i.config.CNIVersion)
		return encodeResult(v, loopbackResult(e.netns)), nil
	case version:
		return encodeVersions(i.config.CNIVersion), nil
	case del, gc, status:
		return nil, nil
	}
	return nil, environmentError(invalidVariable("CNI_COMMAND", string(i.verb), "write ADD, DEL, CHECK, GC, STATUS or VERSION"))
}

func checkLoopback(netns string, isUp func(string) (bool, error)) error {
	up, err := isUp(netns)
	if err == nil && !up {
		err = &Error{Code: CodeIOFailure, Msg: "the loopback interface is down"}
	}
	return err
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
