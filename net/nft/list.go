package nft

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// list goes through what there is of a kind in this table, or with a chain
// through its rules. Of is the attribute with the table's name; what each is
// given is its own.
func (t *Table) list(kind, flags, of uint16, chain string, each func(attributes []byte)) error {
	var b netlink.Builder
	t.request(&b, kind, flags)
	b.String(of, tableName)
	if chain != "" {
		b.String(unix.NFTA_RULE_CHAIN, chain)
	}
	var held [][]byte
	err := t.conn.Dump(&b, func() { held = held[:0] }, func(_ uint16, payload []byte) error {
		// Of some kinds the kernel lists those of all tables.
		if a := attributes(payload); netlink.Text(netlink.Attribute(a, of)) == tableName {
			held = append(held, bytes.Clone(a))
		}
		return nil
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil // no table
	case err != nil:
		return fmt.Errorf("list by nftables: %w", unasked(err))
	}
	for _, a := range held {
		each(a)
	}
	return nil
}
