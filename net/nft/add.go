package nft

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// AddPorts adds host ports, all or none. The table has to be there
// (ErrNoTable). What the same owner has already is fine, and leads to the new
// place if that differs. *PortTaken says that another owner has a port; as
// Kubernetes' scheduler sees it, a port on all addresses collides with the same
// port on any one address, of the same protocol and family. Stale connections of
// UDP and SCTP to the ports are forgotten.
//
// What it costs does not grow with the ports that there are, but for those on
// one address: a port on all has to be compared with each.
func (t *Table) AddPorts(ports []Port) error {
	ports, err := checkedAll(ports)
	if err != nil {
		return fmt.Errorf("add host ports: %w", err)
	}
	if len(ports) == 0 {
		return nil
	}
	var replaced []Port
	known := false
	err = t.retry(func(generation uint32) error {
		add := ports
		if err := t.collisions(ports); err != nil {
			return err
		}
		replaced = nil
		if known {
			var err error
			if add, replaced, err = t.lacking(ports); err != nil || len(add) == 0 {
				return err
			}
		}
		t.begin(generation)
		t.takePorts(replaced)
		t.putPorts(add)
		err := t.commit()
		if errors.Is(err, unix.EEXIST) && !known {
			// Mostly there is none, and no question is asked then.
			known = true
			return unix.ERESTART
		}
		return err
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		err = ErrNoTable
	case errors.Is(err, unix.ENFILE):
		err = fmt.Errorf("of a family there may be %d on all addresses and %d on one: %w", portsSize, portsAtSize, err)
	}
	if err != nil {
		return fmt.Errorf("add host ports: %w", err)
	}
	return t.forget(replaced, ports)
}

// checkedAll is all ports as they are kept, each once.
func checkedAll(ports []Port) ([]Port, error) {
	all := make([]Port, 0, len(ports))
	seen := make(slots, len(ports))
	for _, p := range ports {
		p, err := p.checked()
		if err != nil {
			return nil, err
		}
		q, taken := seen.against(p)
		switch {
		case !taken:
			seen.add(p)
			all = append(all, p)
		case q != p:
			return nil, &PortTaken{Port: p, Owner: q.Owner}
		}
	}
	return all, nil
}

// collisions looks for ports of others on one address where these are on all,
// and on all where these are on one.
func (t *Table) collisions(ports []Port) error {
	listed := map[string][]Port{}
	for _, p := range ports {
		others, err := t.opposite(p, listed)
		if err != nil {
			return err
		}
		for _, q := range others {
			if p.collides(q) {
				return &PortTaken{Port: p, Owner: q.Owner}
			}
		}
	}
	return nil
}

// opposite are the ports that may collide with one. Listed holds what was
// listed already.
func (t *Table) opposite(p Port, listed map[string][]Port) (others []Port, err error) {
	if p.HostIP.IsValid() {
		p.HostIP = netip.Addr{}
		other, err := t.port(p)
		if other != nil {
			others = append(others, *other)
		}
		return others, err
	}
	m := mapFor(familyOf(p.Pod), true)
	others, ok := listed[m.name]
	if !ok {
		others, err = t.portsIn(m)
		listed[m.name] = others
	}
	return others, err
}

// lacking is which ports are to be added, and which lead elsewhere by now and
// are replaced.
func (t *Table) lacking(ports []Port) (add, replaced []Port, err error) {
	for _, p := range ports {
		have, err := t.port(p)
		switch {
		case err != nil:
			return nil, nil, err
		case have == nil:
			add = append(add, p)
		case have.Owner != p.Owner:
			return nil, nil, &PortTaken{Port: p, Owner: have.Owner}
		case *have != p:
			add, replaced = append(add, p), append(replaced, *have)
		}
	}
	return add, replaced, nil
}
