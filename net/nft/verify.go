package nft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Edited means that another process has changed the table: it is not that of Table.Ensure
// for a Base, or of Senders.Sync. Table.Repair or Senders.Sync restores it.
type Edited struct {
	// Table is the family and the name of the table, such as "inet tinylet".
	Table string
	// What is different, such as "chain guard".
	What string
}

// Error returns what is different.
func (e *Edited) Error() string {
	return fmt.Sprintf("nftables table %s was changed by somebody else: %s", e.Table, e.What)
}

func (t *Table) edited(what string) *Edited { return &Edited{Table: t.name(), What: what} }

// Differs reports whether an error is *Edited or ErrNoTable, which Repair or Sync restores.
func Differs(err error) bool { return errors.Is(err, ErrNoTable) || errors.As(err, new(*Edited)) }

// Verify compares the kernel's state with what Ensure writes for a Base: the table,
// its chains, the expressions and comment of each rule, and the kinds of the maps, but not
// their elements. The error is *Edited after a difference and ErrNoTable without the
// table. Verify lists everything, and is meant for slow checks. It ignores chains and sets
// of SyncServices, and other sets.
func (t *Table) Verify(b Base) error {
	b, err := b.checked()
	if err == nil {
		chains := b.layout()
		err = t.consistent(func() error { return t.verify(chains, portSets()) })
	}
	if err == nil || Differs(err) {
		return err
	}
	return fmt.Errorf("compare nftables table %s: %w", t.name(), err)
}

// consistent calls compare again if it finds a difference and the rules have changed
// meanwhile.
func (t *Table) consistent(compare func() error) error {
	return t.retry(func(generation uint32) error {
		err := compare()
		if Differs(err) {
			return cmp.Or(t.unchanged(generation), err)
		}
		return err
	})
}

func (t *Table) verify(chains []chain, sets []nftables.Set) error {
	err := t.verifyAwake()
	if err == nil {
		err = t.verifySets(sets)
	}
	var others map[string]attributes
	if err == nil {
		others, err = t.verifyChains(chains)
	}
	for name := range others {
		if services := t.family == nftables.TableFamilyINet && ofServices(name); err == nil && !services {
			err = t.edited(fmt.Sprintf("unexpected chain %.40q", name))
		}
	}
	if err == nil {
		err = t.verifyRules(chains)
	}
	return err
}

// verifyAwake checks that the table exists and is not dormant.
func (t *Table) verifyAwake() error {
	tables, err := t.list(unix.NFT_MSG_GETTABLE, 0, text(unix.NFTA_TABLE_NAME, tableName))
	dormant := func(a attributes) bool { return a.number(unix.NFTA_TABLE_FLAGS) != 0 }
	if err == nil && slices.ContainsFunc(tables, dormant) {
		err = t.edited("flags of the table")
	}
	return t.noTable(err)
}

func (t *Table) verifySets(sets []nftables.Set) error {
	listed, err := t.sets()
	if err != nil {
		return err
	}
	for _, want := range sets {
		is := func(a attributes) bool { return a.text(unix.NFTA_SET_NAME) == want.Name && isSet(want, a) }
		if !slices.ContainsFunc(listed, is) {
			kind := "set "
			if want.IsMap {
				kind = "map "
			}
			return t.edited(kind + want.Name)
		}
	}
	return nil
}

// verifyChains compares the chains, and returns the other chains of the table.
func (t *Table) verifyChains(chains []chain) (others map[string]attributes, err error) {
	listed, err := t.chains()
	others = map[string]attributes{}
	for _, a := range listed {
		others[a.text(unix.NFTA_CHAIN_NAME)] = a
	}
	for _, c := range chains {
		if listed, ok := others[c.Name]; err == nil && (!ok || !c.is(listed)) {
			err = t.edited("chain " + c.Name)
		}
		delete(others, c.Name)
	}
	return others, err
}

func (t *Table) verifyRules(chains []chain) error {
	listed, err := t.rules("")
	if err != nil {
		return err
	}
	have := map[string][]attributes{}
	for _, a := range listed {
		chain := a.text(unix.NFTA_RULE_CHAIN)
		have[chain] = append(have[chain], a)
	}
	for _, c := range chains {
		if !slices.EqualFunc(c.rules, have[c.Name], (*rule).is) {
			return t.edited("rules of chain " + c.Name)
		}
	}
	return nil
}

// Guarded reports whether the chain guard exists and is active, which drops packets of
// others to services that listen on 127.0.0.0/8 only. With route_localnet and without the
// chain, others reach these services.
func (t *Table) Guarded() (bool, error) {
	err := t.consistent(t.verifyGuard)
	if Differs(err) {
		return false, nil
	}
	return err == nil, err
}

func (t *Table) verifyGuard() error {
	err := t.verifyAwake()
	if err == nil {
		_, err = t.verifyChains([]chain{guard("")})
	}
	if err != nil {
		return err
	}
	rules, err := t.rules(chainGuard)
	if err == nil && len(rules) > 0 {
		// The stamp covers all rules, which may be those of another base.
		want := guard(ruleComment(rules[0]))
		if slices.EqualFunc(want.rules, rules, (*rule).is) {
			return nil
		}
	}
	return cmp.Or(err, error(t.edited("rules of chain "+chainGuard)))
}

// Shared reports whether a notification of nftables (group NFNLGRP_NFTABLES) is
// about what all pods share: the table, its own chains and their rules, the chains that
// all services share, and the table of Senders. It returns false for elements of sets and
// for the chains of single services.
func Shared(kind uint16, payload []byte) bool {
	chain, ok := notifiedChain(kind, payload)
	if !ok || payload[0] == unix.NFPROTO_BRIDGE {
		return ok // the table of Senders has no chain of a single pod
	}
	switch chain {
	case "", chainGuard, chainPrerouting, chainOutput, chainHostPorts, chainPostrouting, chainLeaving,
		chainServices, chainReject, chainServicesPre, chainServicesOutput, chainServicesPosting:
		return true
	}
	return false
}

// Unguards reports whether a notification of nftables may mean that Guarded is no
// longer true.
func Unguards(kind uint16, payload []byte) bool {
	chain, ok := notifiedChain(kind, payload)
	return ok && payload[0] == unix.NFPROTO_INET && (chain == "" || chain == chainGuard)
}

// notifiedChain returns the chain that a notification is about, "" if it is about the
// table. ok is false for other tables and other objects.
func notifiedChain(kind uint16, payload []byte) (chain string, ok bool) {
	if kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(payload) < headerLen || payload[0] != unix.NFPROTO_INET && payload[0] != unix.NFPROTO_BRIDGE {
		return "", false
	}
	a := attributesOf(payload)
	switch kind & 0xff {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE:
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		chain = a.text(unix.NFTA_CHAIN_NAME)
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		chain = a.text(unix.NFTA_RULE_CHAIN)
	default:
		return "", false
	}
	// NFTA_TABLE_NAME, NFTA_CHAIN_TABLE and NFTA_RULE_TABLE are one number.
	return chain, a.text(unix.NFTA_TABLE_NAME) == tableName
}
