package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// deletions is how many connections are deleted with one send: the kernel's
// answers to all have to fit into the socket's buffer.
const deletions = 128

// forget deletes connections of UDP and SCTP that were made before ports were
// removed or added, and would go on as if they had not been: those that lead to
// the pods of gone, and those to ports of fresh that lead elsewhere. The rules
// are asked only for the first packet of a connection, and one without a
// handshake begins anew with any packet. A kernel that does not let its
// connections be deleted (nf_conntrack_netlink) keeps them until they end.
func (t *Table) forget(gone, fresh []Port) error {
	for _, f := range []family{ipv4, ipv6} {
		for _, protocol := range []Protocol{UDP, SCTP} {
			s := stale{gone: portsOf(gone, f, protocol), fresh: portsOf(fresh, f, protocol)}
			if len(s.gone)+len(s.fresh) == 0 {
				continue
			}
			if err := t.deleteStale(f, protocol, s); err != nil && !noConntrack(err) {
				return fmt.Errorf("forget stale connections of host ports: %w", err)
			}
		}
	}
	return nil
}

// noConntrack says that nobody answers; one who does knows our questions, so
// that no other message is invalid.
func noConntrack(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

func portsOf(ports []Port, f family, protocol Protocol) map[uint16][]Port {
	var some map[uint16][]Port
	for _, p := range ports {
		if p.Protocol == protocol && familyOf(p.Pod) == f {
			if some == nil {
				some = map[uint16][]Port{}
			}
			some[p.Host] = append(some[p.Host], p)
		}
	}
	return some
}

// stale says which connections are, by host port.
type stale struct{ gone, fresh map[uint16][]Port }

// is says whether a connection is stale.
func (s stale) is(c connection) bool {
	for _, p := range s.gone[c.orig.dst.Port()] {
		if p.on(c) && c.reply.src == netip.AddrPortFrom(p.Pod, p.Target) {
			return true
		}
	}
	on := false
	for _, p := range s.fresh[c.orig.dst.Port()] {
		switch {
		case !p.on(c):
		case c.reply.src == netip.AddrPortFrom(p.Pod, p.Target):
			return false
		case p.HostIP.IsValid(), c.status&(ipsSrcNAT|ipsDstNAT) == 0:
			// To any address may be past this machine, if it leads elsewhere or
			// is masqueraded.
			on = true
		}
	}
	return on
}

// on says that the connection is to an address that the port is on.
func (p Port) on(c connection) bool {
	return !p.HostIP.IsValid() || p.HostIP == c.orig.dst.Addr()
}

// deleteStale lists the connections of a protocol and deletes the stale ones.
func (t *Table) deleteStale(f family, protocol Protocol, s stale) error {
	var keys [][]byte
	var b netlink.Builder
	askConnections(&b, f, protocol, s.single())
	err := t.conn.Dump(&b, func() { keys = nil }, func(_ uint16, payload []byte) error {
		// Older kernels list those of all protocols.
		if c, ok := readConnection(attributes(payload)); ok && c.protocol == protocol && s.is(c) {
			keys = append(keys, c.key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for len(keys) > 0 {
		n := min(len(keys), deletions)
		if err := t.deleteConnections(f, keys[:n]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// single is the one host port that connections are looked for, 0 if there are
// more.
func (s stale) single() (port uint16) {
	for _, side := range []map[uint16][]Port{s.gone, s.fresh} {
		for p := range side {
			if port != 0 && port != p {
				return 0
			}
			port = p
		}
	}
	return port
}

// askConnections asks for the connections of a protocol, and to one port if it
// is not 0: kernels before Linux 5.8 leave the filter out.
func askConnections(b *netlink.Builder, f family, protocol Protocol, port uint16) {
	b.Begin(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, unix.NLM_F_DUMP)
	b.Raw(header(f.nfproto, 0))
	bits := uint32(filterProto)
	orig := b.Nest(ctaTupleOrig)
	proto := b.Nest(ctaTupleProto)
	b.Uint8(ctaProtoNum, uint8(protocol))
	if port != 0 {
		bits |= filterDst
		b.Bytes(ctaProtoDst, binary.BigEndian.AppendUint16(nil, port))
	}
	b.End(proto)
	b.End(orig)
	filter := b.Nest(ctaFilter)
	b.Uint32(ctaFilterOrig, bits)
	b.End(filter)
}

// deleteConnections deletes connections; some may have ended meanwhile.
func (t *Table) deleteConnections(f family, keys [][]byte) error {
	var b netlink.Builder
	for _, key := range keys {
		b.Begin(unix.NFNL_SUBSYS_CTNETLINK<<8|ctDelete, unix.NLM_F_ACK)
		b.Raw(header(f.nfproto, 0))
		b.Raw(key)
	}
	err := t.conn.Do(&b)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
