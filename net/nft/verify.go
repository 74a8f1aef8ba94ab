package nft

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Edited says that the table is not what Ensure makes of a Base: somebody else
// has changed it. Mend puts it right.
type Edited struct {
	// What is different, such as "chain guard".
	What string
}

// Error says what is different.
func (e *Edited) Error() string {
	return fmt.Sprintf("nftables table inet %s was changed by somebody else: %s", tableName, e.What)
}

// Verify compares all that the kernel has with what Ensure makes of a Base: the
// table, its chains, each rule's bytecode, and the maps' kinds, but not their
// elements. A difference gives *Edited, a missing table ErrNoTable. It lists
// everything, and is for a slow check. What SyncServices makes is passed over.
func (t *Table) Verify(b Base) error {
	b, err := b.checked()
	if err != nil {
		return fmt.Errorf("compare nftables table inet %s: %w", tableName, err)
	}
	chains := b.layout()
	err = t.retry(func(generation uint32) error {
		err := t.verify(chains)
		var edited *Edited
		if errors.As(err, &edited) || errors.Is(err, ErrNoTable) {
			return cmp.Or(t.still(generation), err)
		}
		return err
	})
	var edited *Edited
	if err == nil || errors.As(err, &edited) || errors.Is(err, ErrNoTable) {
		return err
	}
	return fmt.Errorf("compare nftables table inet %s: %w", tableName, err)
}

// ignoreDifference is nil for what Edited and ErrNoTable say.
func ignoreDifference(err error) error {
	if errors.Is(err, ErrNoTable) || errors.As(err, new(*Edited)) {
		return nil
	}
	return err
}

func (t *Table) verify(chains []chain) error {
	for _, compare := range []func([]chain) error{t.verifyTable, t.verifySets, t.verifyChains, t.verifyRules} {
		if err := compare(chains); err != nil {
			return err
		}
	}
	return nil
}

// verifyTable sees that the table is awake.
func (t *Table) verifyTable([]chain) error {
	found, flags := false, uint32(0)
	err := t.list(unix.NFT_MSG_GETTABLE, 0, unix.NFTA_TABLE_NAME, "", func(a []byte) {
		found = true
		flags = net32(netlink.Attribute(a, unix.NFTA_TABLE_FLAGS))
	})
	switch {
	case err != nil:
		return err
	case !found:
		return ErrNoTable
	case flags != 0:
		return &Edited{What: "the table has flags (dormant, say)"}
	}
	return nil
}

func (t *Table) verifySets([]chain) error {
	have := map[string][]byte{}
	if err := t.list(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, unix.NFTA_SET_TABLE, "", func(a []byte) {
		have[netlink.Text(netlink.Attribute(a, unix.NFTA_SET_NAME))] = a
	}); err != nil {
		return err
	}
	for _, m := range portMaps {
		if s := m.set(); !s.is(have[s.name]) {
			return &Edited{What: "map " + s.name}
		}
	}
	return nil
}

// is says whether the kernel's attributes are of such a set.
func (s set) is(a []byte) bool {
	number := func(kind uint16) uint32 { return net32(netlink.Attribute(a, kind)) }
	return number(unix.NFTA_SET_FLAGS) == s.flags &&
		number(unix.NFTA_SET_KEY_LEN) == s.keyLen &&
		number(unix.NFTA_SET_DATA_LEN) == s.valLen &&
		number(unix.NFTA_SET_KEY_TYPE) == s.keyType &&
		number(unix.NFTA_SET_DATA_TYPE) == s.dataType &&
		net32(netlink.Attribute(netlink.Attribute(a, unix.NFTA_SET_DESC), unix.NFTA_SET_DESC_SIZE)) == s.size
}

func (t *Table) verifyChains(chains []chain) error {
	have := map[string][]byte{}
	if err := t.list(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, unix.NFTA_CHAIN_TABLE, "", func(a []byte) {
		have[netlink.Text(netlink.Attribute(a, unix.NFTA_CHAIN_NAME))] = a
	}); err != nil {
		return err
	}
	for _, c := range chains {
		if a, ok := have[c.name]; !ok || !c.is(a) {
			return &Edited{What: "chain " + c.name}
		}
		delete(have, c.name)
	}
	for name := range have {
		if !ofServices(name) {
			return &Edited{What: fmt.Sprintf("chain %.40q, which is not of this table", name)}
		}
	}
	return nil
}

// is says whether the kernel's attributes are of such a chain.
func (c chain) is(a []byte) bool {
	hook := netlink.Attribute(a, unix.NFTA_CHAIN_HOOK)
	if c.kind == "" {
		return hook == nil
	}
	return hook != nil && netlink.Text(netlink.Attribute(a, unix.NFTA_CHAIN_TYPE)) == c.kind &&
		net32(netlink.Attribute(a, unix.NFTA_CHAIN_POLICY)) == verdictAccept &&
		net32(netlink.Attribute(hook, unix.NFTA_HOOK_HOOKNUM)) == c.hook &&
		int32(net32(netlink.Attribute(hook, unix.NFTA_HOOK_PRIORITY))) == c.priority
}

func (t *Table) verifyRules(chains []chain) error {
	have := map[string][][]byte{}
	if err := t.eachRule("", func(chain string, a []byte) { have[chain] = append(have[chain], a) }); err != nil {
		return err
	}
	for _, c := range chains {
		if !slices.EqualFunc(c.rules, have[c.name], (*rule).is) {
			return &Edited{What: "rules of chain " + c.name}
		}
	}
	return nil
}

// is says whether the kernel's attributes are of such a rule.
func (r *rule) is(a []byte) bool {
	var want, have [][]byte
	for _, element := range netlink.Attributes(r.code) {
		want = append(want, element)
	}
	for _, element := range netlink.Attributes(netlink.Attribute(a, unix.NFTA_RULE_EXPRESSIONS)) {
		have = append(have, element)
	}
	return slices.EqualFunc(want, have, sameExpression) &&
		comment(netlink.Attribute(a, unix.NFTA_RULE_USERDATA)) == r.comment
}

// sameExpression compares attribute by attribute: the kernel has an order of
// its own, and adds what was not given where it is zero.
func sameExpression(want, have []byte) bool {
	if !bytes.Equal(netlink.Attribute(want, unix.NFTA_EXPR_NAME), netlink.Attribute(have, unix.NFTA_EXPR_NAME)) {
		return false
	}
	want, have = netlink.Attribute(want, unix.NFTA_EXPR_DATA), netlink.Attribute(have, unix.NFTA_EXPR_DATA)
	for kind, value := range netlink.Attributes(want) {
		if !bytes.Equal(netlink.Attribute(have, kind), value) {
			return false
		}
	}
	for kind, value := range netlink.Attributes(have) {
		if netlink.Attribute(want, kind) == nil && !zero(value) {
			return false
		}
	}
	return true
}

func zero(value []byte) bool {
	for _, b := range value {
		if b != 0 {
			return false
		}
	}
	return true
}
