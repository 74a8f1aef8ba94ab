package nft

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// tries bounds how often a transaction is made anew because the rules were
// changed between its reading and its writing. Each time somebody else has got
// ahead, so that the bound is one on how many do at once.
const tries = 256

// errBusy says that others changed the rules each time.
var errBusy = errors.New("nftables rules are changed by others all the time")

// command is one message of a transaction, for telling what the kernel lacks
// when it refuses it.
type command struct {
	kind uint16
	code []byte // of a rule
}

// headerLen is the length of the family's own header.
const headerLen = 4

// header is the family's own (struct nfgenmsg).
func header(family uint8, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}

// begin starts a transaction. With a generation the kernel refuses it
// (ERESTART) once the rules are those of another.
func (t *Table) begin(generation uint32) {
	t.batch.Reset()
	t.sets = 0
	t.commands = append(t.commands[:0], command{})
	t.batch.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0)
	t.batch.Raw(header(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	if generation != 0 {
		t.batch.Net32(unix.NFNL_BATCH_GENID, generation)
	}
}

// command starts one change of the transaction; its attributes follow.
func (t *Table) command(kind, flags uint16) {
	t.commands = append(t.commands, command{kind: kind})
	t.request(&t.batch, kind, flags)
}

// request starts a message of nftables for the table's family.
func (t *Table) request(b *netlink.Builder, kind, flags uint16) {
	b.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags)
	b.Raw(header(t.family, 0))
}

// commit sends the transaction. The last command's acknowledgement is the
// kernel's word on all of it: errors of earlier ones come before.
func (t *Table) commit() error {
	t.batch.Ack()
	t.batch.Begin(unix.NFNL_MSG_BATCH_END, 0)
	t.batch.Raw(header(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	return t.explain(t.conn.Do(&t.batch))
}

// retry calls try with the generation of the rules until no other transaction
// gets ahead of its own. What try has not found may be there all the same if
// another made the table anew meanwhile, so that it is called again then.
func (t *Table) retry(try func(generation uint32) error) error {
	for range tries {
		generation, err := t.generation()
		if err != nil {
			return err
		}
		err = try(generation)
		if errors.Is(err, unix.ENOENT) {
			err = cmp.Or(t.still(generation), err)
		}
		if !errors.Is(err, unix.ERESTART) {
			return err
		}
	}
	return errBusy
}

// still is ERESTART if the rules are of another generation by now: what was
// read since then may be of both.
func (t *Table) still(generation uint32) error {
	now, err := t.generation()
	if err == nil && now != generation {
		err = unix.ERESTART
	}
	return err
}

// generation is the number of the rules as they are now, of all tables.
func (t *Table) generation() (uint32, error) {
	var b netlink.Builder
	b.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	b.Raw(header(unix.AF_UNSPEC, 0))
	generation := uint32(0)
	err := t.conn.Dump(&b, nil, func(_ uint16, payload []byte) error {
		generation = net32(netlink.Attribute(attributes(payload), unix.NFTA_GEN_ID))
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nftables: %w", unasked(err))
	}
	return generation, nil
}

// attributes is what stands behind the family's header.
func attributes(payload []byte) []byte {
	if len(payload) < headerLen {
		return nil
	}
	return payload[headerLen:]
}

// net32 is a number in the network's order, 0 if it has none.
func net32(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}
