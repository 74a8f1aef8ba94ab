package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// ErrNoBridgeFamily means that the kernel's nf_tables lacks the family bridge, so
// that there can be no Senders.
var ErrNoBridgeFamily = errors.New("the kernel's nf_tables has no family bridge, so pods on the bridge can send with each other's addresses: use a kernel with CONFIG_NF_TABLES_BRIDGE=y")

// Sender is the interface of one pod with the source addresses that the pod may use.
type Sender struct {
	// Port is the name of the interface on the side of the host.
	Port string
	// MAC is the address on the side of the pod.
	MAC net.HardwareAddr
	// Addresses are those of the pod. Its IPv6 link-local address follows from MAC.
	Addresses []netip.Addr
}

// LinkLocal returns the IPv6 link-local address that the kernel derives from a MAC address
// (EUI-64: RFC 4291, appendix A), the zero address if it is not an Ethernet address.
func LinkLocal(mac net.HardwareAddr) netip.Addr {
	if len(mac) != macLen {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

func (s *Sender) check() error {
	if !validInterface(s.Port) {
		return fmt.Errorf("invalid interface name %.40q", s.Port)
	}
	if len(s.MAC) != macLen {
		return fmt.Errorf("%s: invalid Ethernet address %v", s.Port, s.MAC)
	}
	for _, a := range s.Addresses {
		if !usable(a) {
			return fmt.Errorf("%s: invalid address %s", s.Port, a)
		}
	}
	return nil
}

// entries returns the elements of the sender in the sets.
func (s *Sender) entries() []entry {
	name := interfaceName(s.Port)
	mac := slices.Concat(name, s.MAC, make([]byte, macSpace-macLen))
	all := []entry{{setPorts, string(name)}, {setMACs, string(mac)}}
	for _, a := range append(slices.Clone(s.Addresses), LinkLocal(s.MAC)) {
		set := setSender6
		if a = a.Unmap(); a.Is4() {
			set = setSender4
		}
		all = append(all, entry{set, string(mac) + string(a.AsSlice())})
	}
	return all
}

// Senders is the table bridge tinylet of a network namespace. It lets each pod send
// from its own MAC and IP addresses only, by ARP, neighbor discovery and IP. It
// drops router advertisements, answers of DHCP servers, and what is neither IP nor
// ARP. Interfaces that belong to no Sender are not restricted, on whatever bridge.
// The cost of a packet does not depend on the number of pods.
//
// As with Table, each change is one transaction, several processes may change the
// table at the same time, and the methods must be called by one goroutine at a
// time. A kernel without the family bridge gives ErrNoBridgeFamily.
type Senders struct{ table *Table }

// OpenSenders opens the table in the network namespace of the calling thread. The
// table need not exist.
func OpenSenders() (*Senders, error) {
	t, err := Open()
	if err != nil {
		return nil, err
	}
	t.family = nftables.TableFamilyBridge
	return &Senders{t}, nil
}

// Close closes the socket. The table stays as it is.
func (s *Senders) Close() error { return s.table.Close() }

// failed adds what failed to an error, and ErrNoBridgeFamily to an *Unsupported.
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

// Supported returns ErrNoBridgeFamily if the kernel cannot have such a table. It
// sends a transaction that the kernel refuses in any case, so that nothing
// changes.
func (s *Senders) Supported() error {
	b := s.table.begin(0)
	b.newTable("")
	b.deleteSet("none")
	err := s.table.commit(b)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return s.failed("check for the nftables family bridge", err)
}

// Add restricts a sender to its addresses. Existing elements stay. If the rules are
// missing or those of another version, Add creates the table again with all senders,
// which must include this one.
func (s *Senders) Add(sender Sender, all func() ([]Sender, error)) error {
	err := sender.check()
	if err == nil {
		var current bool
		if current, err = s.current(); err == nil && current {
			err = s.change(0, nil, sender.entries())
		}
		if err == nil && !current || errors.Is(err, unix.ENOENT) {
			err = s.table.retry(func(generation uint32) error { return s.remake(generation, all) })
		}
	}
	return s.failed("restrict source addresses of a pod", err)
}

// Remove removes a sender by its interface and addresses. It returns nil if it does
// not exist, or there is no table.
func (s *Senders) Remove(sender Sender) error {
	err := sender.check()
	if err == nil {
		// The kernel refuses to delete missing elements, so that all are added first.
		err = s.change(0, sender.entries(), sender.entries())
	}
	if errors.Is(err, unix.ENOENT) || errors.As(err, new(*Unsupported)) {
		return nil
	}
	return s.failed("remove source addresses of a pod", err)
}

// Sync changes the table to that of all senders. If nothing differs, it only reads. all
// may be called more than once.
func (s *Senders) Sync(all func() ([]Sender, error)) error {
	err := s.table.retry(func(generation uint32) error {
		err := s.verify()
		if Differs(err) {
			return s.remake(generation, all)
		}
		if err != nil {
			return err
		}
		return s.adjust(generation, all)
	})
	return s.failed("restrict source addresses of pods", err)
}

// Verify compares the table, but not its elements, with what Sync writes. The error is
// *Edited after a difference and ErrNoTable without the table.
func (s *Senders) Verify() error {
	err := s.table.consistent(s.verify)
	if err == nil || Differs(err) {
		return err
	}
	return s.failed("compare nftables table "+s.table.name(), err)
}

func (s *Senders) verify() error { return s.table.verify(senderChains(), senderSets()) }

// Has reports whether all elements of a sender exist.
func (s *Senders) Has(sender Sender) (bool, error) {
	if err := sender.check(); err != nil {
		return false, s.failed("get source addresses of a pod", err)
	}
	for _, e := range sender.entries() {
		have, err := s.table.element(e.set, []byte(e.key))
		if err != nil || len(have) == 0 {
			return false, s.failed("get source addresses of a pod", err)
		}
	}
	return true, nil
}

// Delete deletes the table. It returns nil if there is none.
func (s *Senders) Delete() error {
	err := s.table.Delete()
	if errors.As(err, new(*Unsupported)) {
		return nil
	}
	return err
}

// current reports whether the rules are those of this version.
func (s *Senders) current() (bool, error) {
	stamp, err := s.table.stamp(chainFromPods)
	return stamp == senderStamp, err
}

// remake creates the table again.
func (s *Senders) remake(generation uint32, all func() ([]Sender, error)) error {
	entries, err := entriesOf(all)
	if err != nil {
		return err
	}
	b := s.table.begin(generation)
	b.newTable("")
	b.deleteTable()
	b.newTable("what pods send from: tinylet writes this table and mends what is changed by hand")
	b.newSets(senderSets())
	b.newChains(senderChains())
	b.newRules(senderChains())
	b.putEntries(entries)
	return s.table.commit(b)
}

// entriesOf returns the elements of all senders, without those of invalid ones:
// these must not keep the others from being restricted.
func entriesOf(all func() ([]Sender, error)) (entries []entry, err error) {
	senders, err := all()
	if err != nil {
		return nil, err
	}
	for i := range senders {
		if senders[i].check() == nil {
			entries = append(entries, senders[i].entries()...)
		}
	}
	return entries, nil
}

// adjust adds and deletes elements.
func (s *Senders) adjust(generation uint32, all func() ([]Sender, error)) error {
	entries, err := entriesOf(all)
	if err != nil {
		return err
	}
	want := make(map[entry]bool, len(entries))
	for _, e := range entries {
		want[e] = true
	}
	var gone []entry
	for _, set := range senderSets() {
		have, err := s.table.entriesIn(set)
		if err != nil {
			return err
		}
		for _, e := range have {
			if !want[e] {
				gone = append(gone, e)
			}
			delete(want, e)
		}
	}
	if len(want)+len(gone) == 0 {
		return nil
	}
	lacking := slices.DeleteFunc(entries, func(e entry) bool { return !want[e] })
	return s.change(generation, gone, lacking)
}

// change adds elements, and deletes those that are gone afterwards.
func (s *Senders) change(generation uint32, gone, put []entry) error {
	b := s.table.begin(generation)
	b.putEntries(put)
	b.deleteEntries(gone)
	return s.table.commit(b)
}

// entriesIn lists the elements of a set.
func (t *Table) entriesIn(set nftables.Set) ([]entry, error) {
	elements, err := t.elementsOf(set.Name)
	return readEntries(set, elements), err
}

// readEntries returns the elements of a set that have keys of its kind.
func readEntries(set nftables.Set, elements []nftables.SetElement) (all []entry) {
	for _, e := range elements {
		if len(e.Key) == int(set.KeyType.Bytes) {
			all = append(all, entry{set.Name, string(e.Key)})
		}
	}
	return all
}

func (b *batch) putEntries(entries []entry) {
	for _, set := range senderSetNames {
		b.putElements(set, 0, elementsIn(set, entries, nil))
	}
}

func (b *batch) deleteEntries(entries []entry) {
	for _, set := range senderSetNames {
		b.deleteElements(set, elementsIn(set, entries, nil))
	}
}
