package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// portMap is one of the maps from host ports to pods.
type portMap struct {
	name string
	family
	size uint32 // in elements
	at   bool   // the key begins with a host address
}

// portMaps are all maps. Those with a host address come first, as the rules look
// them up first.
var portMaps = [...]portMap{
	{"ports4at", ipv4, portsAtSize, true},
	{"ports6at", ipv6, portsAtSize, true},
	{"ports4", ipv4, portsSize, false},
	{"ports6", ipv6, portsSize, false},
}

// The sizes of the maps in elements. With a size the kernel uses a hash table that
// does not grow (2048 and 512 slots of 4 or 8 bytes) and lists it completely. One
// that grows can be listed in part, and elements would be lost when the table is
// created again.
const (
	portsSize   = 1536
	portsAtSize = 384
)

// set returns the map as the kernel has it.
func (m portMap) set() nftables.Set {
	s := nftables.Set{
		Name: m.name, IsMap: true, Size: m.size, Comment: "host ports on all addresses",
		KeyType:  nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService),
		DataType: nftables.MustConcatSetType(m.addressType(), nftables.TypeInetService),
	}
	if m.at {
		s.KeyType = nftables.MustConcatSetType(m.addressType(), nftables.TypeInetProto, nftables.TypeInetService)
		s.Comment = "host ports on one address"
	}
	return s
}

func portSets() []nftables.Set {
	all := make([]nftables.Set, 0, len(portMaps))
	for _, m := range portMaps {
		all = append(all, m.set())
	}
	return all
}

// mapOf returns the map that a port belongs to.
func mapOf(p Port) portMap { return mapFor(familyOf(p.Pod), p.HostIP.IsValid()) }

func mapFor(f family, at bool) portMap {
	for _, m := range portMaps {
		if m.family == f && m.at == at {
			return m
		}
	}
	return portMap{}
}

// rule returns the rule that redirects host ports to pods by the map.
func (m portMap) rule() *rule {
	r, word := when("").nfproto(m.family), 0
	if m.at {
		r.network(m.dst, m.length, 0)
		word = m.words
	}
	return r.protoPort(word).mapped(m.name).dnat(m.family)
}

// key returns the key of a port. Each part fills whole registers.
func (m portMap) key(p Port) []byte {
	var key []byte
	if m.at {
		key = p.HostIP.AsSlice()
	}
	return appendPort(key, p.Protocol, p.Host)
}

func appendPort(key []byte, protocol Protocol, port uint16) []byte {
	return append(key, byte(protocol), 0, 0, 0, byte(port>>8), byte(port), 0, 0)
}

// endpointValue returns an endpoint as maps have it. Each part fills whole
// registers.
func endpointValue(e netip.AddrPort) []byte {
	return append(binary.BigEndian.AppendUint16(e.Addr().AsSlice(), e.Port()), 0, 0)
}

// element returns a port as an element of the map.
func (m portMap) element(p Port) nftables.SetElement {
	return nftables.SetElement{Key: m.key(p), Val: endpointValue(netip.AddrPortFrom(p.Pod, p.Target)), Comment: p.Owner}
}

// port reads an element of the map. ok is false for an element that element does
// not return.
func (m portMap) port(e nftables.SetElement) (p Port, ok bool) {
	key := e.Key
	if m.at {
		if len(key) < m.length {
			return p, false
		}
		p.HostIP, _ = netip.AddrFromSlice(key[:m.length])
		key = key[m.length:]
	}
	if len(key) != 8 || len(e.Val) != m.length+4 {
		return p, false
	}
	p.Protocol = Protocol(key[0])
	p.Host = binary.BigEndian.Uint16(key[4:])
	p.Pod, _ = netip.AddrFromSlice(e.Val[:m.length])
	p.Target = binary.BigEndian.Uint16(e.Val[m.length:])
	p.Owner = e.Comment
	return p, true
}

// read returns the ports among elements of the map.
func (m portMap) read(elements []nftables.SetElement) (all []Port) {
	for _, e := range elements {
		if p, ok := m.port(e); ok {
			all = append(all, p)
		}
	}
	return all
}

// addPorts adds ports that do not exist.
func (b *batch) addPorts(ports []Port) { eachMap(ports, b.addElements) }

// deletePorts deletes ports that exist.
func (b *batch) deletePorts(ports []Port) { eachMap(ports, b.deleteElements) }

func eachMap(ports []Port, do func(name string, elements []nftables.SetElement)) {
	for _, m := range portMaps {
		var elements []nftables.SetElement
		for _, p := range ports {
			if mapOf(p) == m {
				elements = append(elements, m.element(p))
			}
		}
		do(m.name, elements)
	}
}

// Ports returns all host ports of the table with their owners, none if the table
// does not exist. They come map by map, in no order.
func (t *Table) Ports() ([]Port, error) {
	var all []Port
	err := t.retry(func(generation uint32) (err error) {
		if all, err = t.allPorts(); err != nil {
			return err
		}
		return t.unchanged(generation)
	})
	if err != nil {
		return nil, fmt.Errorf("list host ports: %w", err)
	}
	return all, nil
}

// allPorts lists the ports, which may be of two generations. A map that does not
// exist has none.
func (t *Table) allPorts() ([]Port, error) {
	var all []Port
	for _, m := range portMaps {
		ports, err := t.portsIn(m)
		if err = ignoreAbsent(err); err != nil {
			return nil, err
		}
		all = append(all, ports...)
	}
	return all, nil
}

func (t *Table) portsIn(m portMap) ([]Port, error) {
	elements, err := t.elementsOf(m.name)
	return m.read(elements), err
}

// port returns the port with the key of one, nil for none.
func (t *Table) port(p Port) (*Port, error) {
	m := mapOf(p)
	elements, err := t.element(m.name, m.key(p))
	if err != nil {
		return nil, fmt.Errorf("get host port %s: %w", p, err)
	}
	for _, found := range m.read(elements) {
		return &found, nil
	}
	return nil, nil
}

// AddPorts adds all host ports, or none. The error is ErrNoTable without the table. A port
// that its owner has already is no error, and leads to the new pod if that
// differs. *PortTaken means that another owner has a port: as for the Kubernetes
// scheduler, a port on all addresses collides with the same port on any one
// address, of the same protocol and family. Stale connections of UDP and SCTP to
// the ports that did not exist are deleted.
//
// The cost depends on the number of existing ports on one address only, because a port on
// all addresses is compared with each of them, and for added ports of UDP and SCTP on the
// number of tracked connections.
func (t *Table) AddPorts(ports []Port) error {
	ports, err := checkedAll(ports)
	if err != nil {
		return fmt.Errorf("add host ports: %w", err)
	}
	if len(ports) == 0 {
		return nil
	}
	added, replaced, err := t.addChecked(ports)
	if errors.Is(err, unix.ENFILE) {
		err = fmt.Errorf("limit of %d ports on all addresses and %d on one address, for each family: %w", portsSize, portsAtSize, err)
	}
	if err != nil {
		return fmt.Errorf("add host ports: %w", t.noTable(err))
	}
	return t.deleteStaleConnections(replaced, added)
}

// addChecked adds those ports that do not exist. It returns them, and those of the same
// owners that they replace.
func (t *Table) addChecked(ports []Port) (added, replaced []Port, err error) {
	some := false // some of the ports exist
	err = t.retry(func(generation uint32) error {
		if err := t.collisions(ports); err != nil {
			return err
		}
		added, replaced = ports, nil
		if some {
			var err error
			if added, replaced, err = t.lacking(ports); err != nil || len(added) == 0 {
				return err
			}
		}
		b := t.begin(generation)
		b.deletePorts(replaced)
		b.addPorts(added)
		err := t.commit(b)
		if errors.Is(err, unix.EEXIST) && !some {
			// Mostly none exists, and no port is looked up then.
			some = true
			return unix.ERESTART
		}
		return err
	})
	return added, replaced, err
}

// checkedAll returns ports in the form that the kernel stores, each once.
func checkedAll(ports []Port) ([]Port, error) {
	all := make([]Port, 0, len(ports))
	seen := make(portSet, len(ports))
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

// collisions returns *PortTaken if other owners have a port on one address where
// these are on all, or on all where these are on one.
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

// opposite returns the ports that may collide with one. It keeps in listed what it
// lists.
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

// lacking returns which ports have to be added, and which existing ones lead
// elsewhere and have to be replaced.
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

// RemovePorts removes host ports by HostIP, Protocol, Host and the family of Pod,
// or of both families if neither address is known. It ignores ports that do not exist or
// belong to another owner. Without a table RemovePorts returns nil. It deletes connections
// of UDP and SCTP that lead to the pods, so that the ports are free for the next owner.
// For a port that no longer exists that requires Pod and Target.
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
			return t.unchanged(generation)
		}
		b := t.begin(generation)
		b.deletePorts(found)
		return t.commit(b)
	})
	if err != nil {
		return fmt.Errorf("remove host ports: %w", err)
	}
	return t.deleteStaleConnections(append(found, keys...), nil)
}

// keyedAll returns ports in the form that the kernel stores, of both families if
// the family is unknown.
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

// owned returns the ports that exist and still belong to their owners, each once: the
// kernel does not delete an element twice.
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
