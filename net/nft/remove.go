package nft

import (
	"fmt"
	"net/netip"
)

// RemovePorts removes host ports by HostIP, Protocol, Host and the family of
// Pod; where neither address is known, of both families. What is gone, or
// another owner's by now, is left. It is nil if there is no table. Connections
// of UDP and SCTP that go on to the pods are forgotten, so that these ports are
// free for who has them next; where a port is gone already, that needs its Pod
// and Target.
func (t *Table) RemovePorts(ports []Port) error {
	keys, err := keyedAll(ports)
	if err != nil {
		return fmt.Errorf("remove host ports: %w", err)
	}
	if len(keys) == 0 {
		return nil
	}
	var found []Port
	err = t.retry(func(generation uint32) (err error) {
		if found, err = t.owned(keys); err != nil {
			return err
		}
		if len(found) == 0 {
			return t.still(generation)
		}
		return t.remove(generation, found)
	})
	if err != nil {
		return fmt.Errorf("remove host ports: %w", err)
	}
	return t.forget(append(found, keys...), nil)
}

// keyedAll is all ports as they are looked for.
func keyedAll(ports []Port) ([]Port, error) {
	keys := make([]Port, 0, len(ports))
	for _, p := range ports {
		p, err := p.keyed()
		if err != nil {
			return nil, err
		}
		if p.Pod.IsValid() {
			keys = append(keys, p)
			continue
		}
		for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			p.Pod = any
			keys = append(keys, p)
		}
	}
	return keys, nil
}

// owned is what there is of ports, and is still their owner's. Each is listed
// once, since the kernel does not delete twice.
func (t *Table) owned(keys []Port) ([]Port, error) {
	var found []Port
	seen := make(map[Port]bool, len(keys))
	for _, p := range keys {
		have, err := t.port(p)
		if err != nil {
			return nil, err
		}
		if have != nil && have.Owner == p.Owner && !seen[*have] {
			seen[*have] = true
			found = append(found, *have)
		}
	}
	return found, nil
}

func (t *Table) remove(generation uint32, ports []Port) error {
	t.begin(generation)
	t.takePorts(ports)
	return t.commit()
}

// RemoveOwners removes the host ports of all owners for which gone says so, and
// returns them. Owners are in the form that KeptOwner gives. Gone may be called
// more than once for an owner. Without a table there is nothing to do.
func (t *Table) RemoveOwners(gone func(owner string) bool) (removed []Port, err error) {
	err = t.retry(func(generation uint32) error {
		removed = nil
		all, err := t.allPorts()
		if err != nil {
			return err
		}
		for _, p := range all {
			if gone(p.Owner) {
				removed = append(removed, p)
			}
		}
		if removed == nil {
			return t.still(generation)
		}
		return t.remove(generation, removed)
	})
	if err != nil {
		return nil, fmt.Errorf("remove host ports of owners that are gone: %w", err)
	}
	return removed, t.forget(removed, nil)
}
