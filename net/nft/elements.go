package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// elementsLen bounds the elements of one message, whose attribute holds 64 KiB.
const elementsLen = 48 << 10

// Ports are all host ports of the table, with their owners; none if there is no
// table. They come map by map, in no order.
func (t *Table) Ports() ([]Port, error) {
	var all []Port
	err := t.retry(func(generation uint32) (err error) {
		if all, err = t.allPorts(); err != nil {
			return err
		}
		return t.still(generation)
	})
	if err != nil {
		return nil, fmt.Errorf("list host ports: %w", err)
	}
	return all, nil
}

// allPorts lists what there is, which may be of two generations. A map that is
// missing has none.
func (t *Table) allPorts() ([]Port, error) {
	var all []Port
	for _, m := range portMaps {
		ports, err := t.portsIn(m)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		all = append(all, ports...)
	}
	return all, nil
}

func (t *Table) portsIn(m portMap) (all []Port, err error) {
	var b netlink.Builder
	t.request(&b, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP)
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, m.name)
	err = t.conn.Dump(&b, func() { all = all[:0] }, func(_ uint16, payload []byte) error {
		all = m.read(payload, all)
		return nil
	})
	return all, unasked(err)
}

// read appends the ports in a message of elements.
func (m portMap) read(payload []byte, all []Port) []Port {
	list := netlink.Attribute(attributes(payload), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, element := range netlink.Attributes(list) {
		if p, ok := m.port(element); ok {
			all = append(all, p)
		}
	}
	return all
}

// port asks for one port by its key; nil is none. What it costs does not depend
// on how many there are.
func (t *Table) port(p Port) (*Port, error) {
	m := mapOf(p)
	var b netlink.Builder
	t.request(&b, unix.NFT_MSG_GETSETELEM, 0)
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, m.name)
	list := b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	putKey(&b, m, p)
	b.End(list)
	var found []Port
	err := t.conn.Dump(&b, nil, func(_ uint16, payload []byte) error {
		found = m.read(payload, found)
		return nil
	})
	if errors.Is(err, unix.ENOENT) || err == nil && found == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for host port %s: %w", p, unasked(err))
	}
	return &found[0], nil
}

// putData writes a key or a value.
func putData(b *netlink.Builder, kind uint16, value []byte) {
	at := b.Nest(kind)
	b.Bytes(unix.NFTA_DATA_VALUE, value)
	b.End(at)
}

func putKey(b *netlink.Builder, m portMap, p Port) {
	element := b.Nest(unix.NFTA_LIST_ELEM)
	putData(b, unix.NFTA_SET_ELEM_KEY, m.key(p))
	b.End(element)
}

func putElement(b *netlink.Builder, m portMap, p Port) {
	element := b.Nest(unix.NFTA_LIST_ELEM)
	putData(b, unix.NFTA_SET_ELEM_KEY, m.key(p))
	putData(b, unix.NFTA_SET_ELEM_DATA, m.value(p))
	b.Bytes(unix.NFTA_SET_ELEM_USERDATA, userdata(commentOfElement, p.Owner))
	b.End(element)
}

// putPorts adds ports that are not there.
func (t *Table) putPorts(ports []Port) {
	t.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE|unix.NLM_F_EXCL, ports, putElement)
}

// takePorts deletes ports that are there.
func (t *Table) takePorts(ports []Port) {
	t.elements(unix.NFT_MSG_DELSETELEM, 0, ports, putKey)
}

func (t *Table) elements(kind, flags uint16, ports []Port, put func(*netlink.Builder, portMap, Port)) {
	for _, m := range portMaps {
		list := elementList{table: t, kind: kind, flags: flags, set: m.name}
		for _, p := range ports {
			if mapOf(p) == m {
				list.next()
				put(&t.batch, m, p)
			}
		}
		list.end()
	}
}

// elementList writes the elements of one set into as few commands as hold them.
type elementList struct {
	table       *Table
	kind, flags uint16
	set         string
	id          uint32 // of an anonymous set

	at   netlink.Nest
	open bool
}

// next makes room for one element.
func (l *elementList) next() {
	b := &l.table.batch
	if l.open && b.Nested(l.at) > elementsLen {
		l.end()
	}
	if l.open {
		return
	}
	l.table.command(l.kind, l.flags)
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, l.set)
	if l.id != 0 {
		b.Net32(unix.NFTA_SET_ELEM_LIST_SET_ID, l.id)
	}
	l.at, l.open = b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS), true
}

// end closes the last command.
func (l *elementList) end() {
	if l.open {
		l.table.batch.End(l.at)
	}
	l.open = false
}
