package nft

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// ErrNoBridgeFamily says that the kernel's nf_tables has no family bridge, so
// that there can be no Senders.
var ErrNoBridgeFamily = errors.New("the kernel's nf_tables has no family bridge, so pods on the bridge can send with each other's addresses: use a kernel with CONFIG_NF_TABLES_BRIDGE=y")

// Sender is one pod's interface, with all that it may send from.
type Sender struct {
	// Port is the name of the interface on the host's side.
	Port string
	// MAC is that of the pod's side.
	MAC net.HardwareAddr
	// Addresses are the pod's. Its link-local address of IPv6 follows from MAC.
	Addresses []netip.Addr
}

// LinkLocal is the IPv6 address that the kernel gives an interface by its MAC
// address (RFC 4291, appendix A).
func LinkLocal(mac net.HardwareAddr) netip.Addr {
	if len(mac) != macLen {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

func (s *Sender) check() error {
	if !validInterface(s.Port) {
		return fmt.Errorf("%.40q is no name of an interface", s.Port)
	}
	if len(s.MAC) != macLen {
		return fmt.Errorf("%s: %v is no MAC address of Ethernet", s.Port, s.MAC)
	}
	for _, a := range s.Addresses {
		if !usable(a) {
			return fmt.Errorf("%s: address %s cannot be used", s.Port, a)
		}
	}
	return nil
}

// senderKey is an element of one of the sets.
type senderKey struct{ set, key string }

// keys are the sender's elements.
func (s *Sender) keys() []senderKey {
	name := interfaceName(s.Port)
	mac := slices.Concat(name, s.MAC, make([]byte, macSpace-macLen))
	all := []senderKey{{setPorts, string(name)}, {setMACs, string(mac)}}
	for _, a := range append(slices.Clone(s.Addresses), LinkLocal(s.MAC)) {
		set := setSender6
		if a = a.Unmap(); a.Is4() {
			set = setSender4
		}
		all = append(all, senderKey{set, string(mac) + string(a.AsSlice())})
	}
	return all
}

// Senders is the table bridge tinylet of a network namespace. It has each pod
// send from its own MAC and IP addresses alone: by ARP, neighbor discovery and
// IP. Router advertisements and answers of DHCP servers are dropped, and what is
// neither IP nor ARP. Interfaces that are not of a Sender are left alone, on
// whatever bridge. What a packet costs does not depend on the number of pods.
//
// As with a Table, all of a change is one transaction, several processes may
// change it at once, and methods are for one goroutine at a time. A kernel
// without the family bridge gives ErrNoBridgeFamily.
type Senders struct{ table *Table }

// OpenSenders opens the table in the network namespace of the calling thread. It
// need not be there.
func OpenSenders() (*Senders, error) { return openedSenders(Open()) }

// OpenSendersIn opens the table in the network namespace that is open as ns,
// which may be closed afterwards.
func OpenSendersIn(ns *os.File) (*Senders, error) { return openedSenders(OpenIn(ns)) }

func openedSenders(t *Table, err error) (*Senders, error) {
	if err != nil {
		return nil, err
	}
	t.family = unix.NFPROTO_BRIDGE
	return &Senders{t}, nil
}

// Close closes the socket. The table stays as it is.
func (s *Senders) Close() error { return s.table.Close() }

// failed says what was attempted, and what the kernel lacks.
func (s *Senders) failed(what string, err error) error {
	var lacks *Unsupported
	switch {
	case err == nil:
		return nil
	case errors.As(err, &lacks):
		return fmt.Errorf("%s: %w (%w)", what, ErrNoBridgeFamily, lacks.Err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Supported reports by its error whether the kernel can have such a table:
// ErrNoBridgeFamily if it cannot. The kernel is asked by a transaction that it
// refuses in any case, so nothing changes.
func (s *Senders) Supported() error {
	t := s.table
	t.begin(0)
	t.newTableWith("")
	t.deleteSet("none")
	err := t.commit()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return s.failed("ask whether nftables has the family bridge", err)
}

// Add has a sender send from its addresses alone. What it has is left. Where the
// rules are missing or another version's, the table is made anew with all
// senders, which has to give this one as well.
func (s *Senders) Add(sender Sender, all func() ([]Sender, error)) error {
	err := sender.check()
	if err == nil {
		var made bool
		if made, err = s.made(); err == nil && made {
			err = s.change(nil, sender.keys())
		}
		if err == nil && !made || errors.Is(err, unix.ENOENT) {
			err = s.remake(all)
		}
	}
	return s.failed("restrict what a pod sends from", err)
}

// Remove forgets a sender by its interface and addresses. It is nil if there is
// none, or no table.
func (s *Senders) Remove(sender Sender) error {
	err := sender.check()
	if err == nil {
		// The kernel refuses to delete what is not there, so it is put there first.
		err = s.change(sender.keys(), sender.keys())
	}
	if errors.Is(err, unix.ENOENT) || errors.As(err, new(*Unsupported)) {
		return nil
	}
	return s.failed("forget what a pod sends from", err)
}

// Sync makes the table that of all senders, whatever it is like, and sends
// nothing but questions if it is. All may be called more than once.
func (s *Senders) Sync(all func() ([]Sender, error)) error {
	err := s.table.retry(func(generation uint32) error {
		err := s.verify()
		var edited *Edited
		if errors.As(err, &edited) || errors.Is(err, ErrNoTable) {
			return s.remakeOnce(generation, all)
		}
		if err != nil {
			return err
		}
		return s.adjust(generation, all)
	})
	return s.failed("restrict what pods send from", err)
}

// Verify compares the table, but not its elements, with what Sync makes: a
// difference gives *Edited, a missing table ErrNoTable.
func (s *Senders) Verify() error {
	err := s.verify()
	var edited *Edited
	if err == nil || errors.As(err, &edited) || errors.Is(err, ErrNoTable) {
		return err
	}
	return s.failed("compare nftables table bridge "+tableName, err)
}

// Has reports whether a sender has all its elements.
func (s *Senders) Has(sender Sender) (bool, error) {
	if err := sender.check(); err != nil {
		return false, s.failed("look what a pod sends from", err)
	}
	wanted := sender.keys()
	for _, set := range senderSets() {
		have, err := s.table.keysIn(set)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return false, s.failed("look what a pod sends from", err)
		}
		wanted = slices.DeleteFunc(wanted, func(k senderKey) bool { return slices.Contains(have, k) })
	}
	return len(wanted) == 0, nil
}

// Ports are the interfaces of all senders, none if there is no table.
func (s *Senders) Ports() ([]string, error) {
	keys, err := s.table.keysIn(senderSets()[0])
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, s.failed("list what pods send from", err)
	}
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		names = append(names, strings.TrimRight(k.key, "\x00"))
	}
	return names, nil
}

// Delete removes the table. It is nil if there is none.
func (s *Senders) Delete() error {
	err := s.table.Delete()
	if errors.As(err, new(*Unsupported)) {
		return nil
	}
	return err
}

// made reports whether the rules are those of this version.
func (s *Senders) made() (bool, error) {
	stamp := ""
	err := s.table.eachRule(chainFromPods, func(_ string, attributes []byte) {
		if stamp == "" {
			stamp = comment(netlink.Attribute(attributes, unix.NFTA_RULE_USERDATA))
		}
	})
	return stamp == senderStamp(senderChains()), err
}

func (s *Senders) verify() error {
	if err := s.table.verifyTable(nil); err != nil {
		return err
	}
	have := map[string][]byte{}
	if err := s.table.list(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, unix.NFTA_SET_TABLE, "", func(a []byte) {
		have[netlink.Text(netlink.Attribute(a, unix.NFTA_SET_NAME))] = a
	}); err != nil {
		return err
	}
	for _, want := range senderSets() {
		if !want.is(have[want.name]) {
			return &Edited{What: "set " + want.name}
		}
	}
	chains := senderChains()
	if err := s.table.verifyChains(chains); err != nil {
		return err
	}
	return s.table.verifyRules(chains)
}

// remake makes the table anew.
func (s *Senders) remake(all func() ([]Sender, error)) error {
	return s.table.retry(func(generation uint32) error { return s.remakeOnce(generation, all) })
}

func (s *Senders) remakeOnce(generation uint32, all func() ([]Sender, error)) error {
	keys, err := keysOf(all)
	if err != nil {
		return err
	}
	t := s.table
	t.begin(generation)
	t.newTableWith("")
	t.deleteTable()
	t.newTableWith("what pods send from: tinylet writes this table and mends what is changed by hand")
	for _, set := range senderSets() {
		t.newSet(set)
	}
	t.newChains(senderChains())
	t.newRules(senderChains())
	t.putKeys(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, keys)
	return t.commit()
}

// keysOf are the elements of all senders. One that makes no sense is left out:
// it must not keep the others from being held to theirs.
func keysOf(all func() ([]Sender, error)) (keys []senderKey, err error) {
	senders, err := all()
	if err != nil {
		return nil, err
	}
	for i := range senders {
		if senders[i].check() == nil {
			keys = append(keys, senders[i].keys()...)
		}
	}
	return keys, nil
}

// adjust adds and removes elements.
func (s *Senders) adjust(generation uint32, all func() ([]Sender, error)) error {
	keys, err := keysOf(all)
	if err != nil {
		return err
	}
	want := make(map[senderKey]bool, len(keys))
	for _, k := range keys {
		want[k] = true
	}
	t := s.table
	var gone []senderKey
	for _, set := range senderSets() {
		have, err := t.keysIn(set)
		if err != nil {
			return err
		}
		for _, k := range have {
			if !want[k] {
				gone = append(gone, k)
			}
			delete(want, k)
		}
	}
	if len(want)+len(gone) == 0 {
		return nil
	}
	lacking := slices.DeleteFunc(keys, func(k senderKey) bool { return !want[k] })
	t.begin(generation)
	t.putKeys(unix.NFT_MSG_DELSETELEM, 0, gone)
	t.putKeys(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, lacking)
	return t.commit()
}

// change adds elements, and removes them again where they are to be gone.
func (s *Senders) change(gone, put []senderKey) error {
	t := s.table
	t.begin(0)
	t.putKeys(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, put)
	t.putKeys(unix.NFT_MSG_DELSETELEM, 0, gone)
	return t.commit()
}

// keysIn lists the elements of a set.
func (t *Table) keysIn(of set) (all []senderKey, err error) {
	var b netlink.Builder
	t.request(&b, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP)
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, of.name)
	err = t.conn.Dump(&b, func() { all = all[:0] }, func(_ uint16, payload []byte) error {
		all = of.readKeys(payload, all)
		return nil
	})
	return all, unasked(err)
}

// readKeys appends the keys in a message of elements.
func (s set) readKeys(payload []byte, all []senderKey) []senderKey {
	list := netlink.Attribute(attributes(payload), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, element := range netlink.Attributes(list) {
		key := netlink.Attribute(netlink.Attribute(element, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE)
		if len(key) == int(s.keyLen) {
			all = append(all, senderKey{s.name, string(bytes.Clone(key))})
		}
	}
	return all
}

// putKeys writes elements into the transaction.
func (t *Table) putKeys(kind, flags uint16, keys []senderKey) {
	for _, set := range senderSets() {
		list := elementList{table: t, kind: kind, flags: flags, set: set.name}
		for _, k := range keys {
			if k.set != set.name {
				continue
			}
			list.next()
			element := t.batch.Nest(unix.NFTA_LIST_ELEM)
			putData(&t.batch, unix.NFTA_SET_ELEM_KEY, []byte(k.key))
			t.batch.End(element)
		}
		list.end()
	}
}
