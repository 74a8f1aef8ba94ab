package nft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Ensure makes the table, its chains, its rules and its maps, or rewrites the
// chains and rules where they are of another Base or another version of this
// package, or were flushed. Elements of the maps stay. Nothing is sent but a
// question if nothing has changed; what was edited by hand is not seen then
// (Verify, Mend). A kernel that lacks a module gives *Unsupported.
//
// Ports says which host ports there are to be, and may be nil. It is called only
// where rules are written, once or more, and those of its ports that are missing
// go into the same transaction: whoever finds the rules need not look for the
// ports. Where two collide, the one that is there or comes first stays. That,
// what makes no sense, and what there is no room for is left out without an
// error, since one port must not keep the rules from all; AddPorts says what is
// wrong with it. Stale connections to what was missing are forgotten.
func (t *Table) Ensure(b Base, ports func() ([]Port, error)) (changed bool, err error) {
	b, err = b.checked()
	if err != nil {
		return false, fmt.Errorf("make nftables table inet %s: %w", tableName, err)
	}
	chains := b.layout()
	have, err := t.stamp()
	if err == nil && have == stampOf(chains) {
		return false, nil
	}
	if err == nil {
		changed, err = t.write(chains, have, ports)
	}
	if err != nil {
		return false, fmt.Errorf("make nftables table inet %s: %w", tableName, err)
	}
	return changed, nil
}

// Mend makes the table anew, whatever it is like. The host ports stay, those of
// ports that are missing are added as Ensure does, and what SyncServices has made
// stays: who mends need not know of services, and they are another's. What else
// is in it does not. Only where something that somebody has put into the table
// holds on to what has to go are services lost, until SyncServices is called
// again.
func (t *Table) Mend(b Base, ports func() ([]Port, error)) error {
	b, err := b.checked()
	if err == nil {
		err = t.rebuild(b.layout(), ports)
	}
	if err != nil {
		return fmt.Errorf("make nftables table inet %s anew: %w", tableName, err)
	}
	return nil
}

func stampOf(chains []chain) string {
	for _, c := range chains {
		if c.name == chainGuard {
			return c.rules[0].comment
		}
	}
	return ""
}

// stamp is what the kernel's rules were made of, "" if there are none.
func (t *Table) stamp() (stamp string, err error) {
	first := true
	err = t.eachRule(chainGuard, func(_ string, attributes []byte) {
		if first {
			stamp = comment(netlink.Attribute(attributes, unix.NFTA_RULE_USERDATA))
		}
		first = false
	})
	return stamp, err
}

// eachRule goes through the rules of a chain, or of all, in their order.
func (t *Table) eachRule(chain string, each func(chain string, attributes []byte)) error {
	return t.list(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, unix.NFTA_RULE_TABLE, chain, func(a []byte) {
		of := netlink.Text(netlink.Attribute(a, unix.NFTA_RULE_CHAIN))
		if chain == "" || of == chain {
			each(of, a)
		}
	})
}
