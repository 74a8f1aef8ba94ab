package cni

import (
	"net"
	"net/netip"
)

// LoopbackType is the name of the plugin that brings the loopback interface of
// a container up. containerd calls it for each sandbox, unless its CRI plugin
// has use_internal_loopback, with the interface name lo.
const LoopbackType = "loopback"

// RunLoopback answers a call of the loopback plugin and returns the exit code of
// the process, 0 or 1. up brings the loopback interface in the network
// namespace at a path up; isUp reports whether it is. DEL, GC and STATUS do
// nothing: the interface goes with its namespace.
func (c Call) RunLoopback(up func(netns string) error, isUp func(netns string) (bool, error)) (exit int) {
	return c.run(parseLoopback, func(t *invocation) ([]byte, error) { return t.runLoopback(up, isUp) })
}

// parseLoopback reads what the loopback plugin needs of a document: the version
// and a previous result. All other fields belong to other plugins.
func parseLoopback(data []byte) (*request, error) {
	d := &decoder{}
	r := &request{}
	d.document(data, func(at *location, value []byte) {
		switch string(at.key) {
		case "cniVersion":
			r.config.CNIVersion = d.str(at, value)
		case "prevResult":
			if !isNull(value) {
				r.prevResult = value
			}
		}
	})
	if d.err != nil {
		return r, d.err
	}
	return r, nil
}

func (t *invocation) runLoopback(up func(string) error, isUp func(string) (bool, error)) ([]byte, error) {
	switch t.verb {
	case add, check:
		if t.configErr != nil {
			return nil, t.configErr
		}
		if err := checkVersion(t.verb, t.config.CNIVersion); err != nil {
			return nil, err
		}
		e, fault := readEnvironment(t.env, t.verb)
		if fault != nil {
			return nil, fault
		}
		if t.verb == check {
			return nil, checkLoopback(e.netns, isUp)
		}
		if err := up(e.netns); err != nil {
			return nil, err
		}
		if t.prevResult != nil {
			return append(append(make([]byte, 0, len(t.prevResult)+1), t.prevResult...), '\n'), nil
		}
		s, _ := parseVersion(t.config.CNIVersion)
		return appendResult(nil, s, loopbackResult(e.netns)), nil
	case version:
		return appendVersions(nil, t.config.CNIVersion), nil
	case del, gc, status:
		return nil, nil
	}
	return nil, environmentError(invalidVariable("CNI_COMMAND", string(t.verb), "write ADD, DEL, CHECK, GC, STATUS or VERSION"))
}

func checkLoopback(netns string, isUp func(string) (bool, error)) error {
	is, err := isUp(netns)
	if err == nil && !is {
		err = &Error{Code: CodeIOFailure, Msg: "the loopback interface is down"}
	}
	return err
}

// loopbackResult is what the kernel gives a loopback interface that is up.
func loopbackResult(netns string) *Result {
	return &Result{
		Interfaces: []Interface{{Name: "lo", MAC: make(net.HardwareAddr, 6), Sandbox: netns}},
		IPs: []IP{
			{Interface: 0, Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 8)},
			{Interface: 0, Address: netip.PrefixFrom(netip.IPv6Loopback(), 128)},
		},
	}
}
