package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Ensure creates the table, its chains, its rules and its maps. It rewrites chains
// and rules that are those of another Base or of another version of this package,
// or that were flushed. Elements of the maps stay. If nothing has changed Ensure
// only reads the rules of one chain: it does not notice what was edited by hand
// (see Verify and Repair). A kernel that lacks a module gives *Unsupported.
//
// ports returns the host ports that have to exist, and may be nil. Ensure calls it
// only when it writes rules, once or more often, and adds those that are missing
// in the same transaction, so that a process that finds the rules finds the ports
// too. Of two ports that collide, the existing or the first one stays. The other one,
// invalid ones and those beyond the size of the maps are left out without an error,
// because one port must not prevent the rules of all. AddPorts reports what is wrong
// with a port. Stale connections to the added ports are deleted.
func (t *Table) Ensure(b Base, ports func() ([]Port, error)) (changed bool, err error) {
	b, err = b.checked()
	if err != nil {
		return false, fmt.Errorf("create nftables table inet %s: %w", tableName, err)
	}
	have, err := t.stamp(chainGuard)
	if err == nil && have == b.stamp() {
		return false, nil
	}
	if err == nil {
		changed, err = t.write(b, have, ports)
	}
	if err != nil {
		return false, fmt.Errorf("create nftables table inet %s: %w", tableName, err)
	}
	return changed, nil
}

// Repair creates the contents of the table again, whatever they are. Host ports
// stay, missing ones are added as by Ensure, and what SyncServices wrote stays, because
// the caller of Repair may not know the services. All else is deleted. Services are lost
// until the next SyncServices if the table is dormant, or if foreign objects in the
// table refer to what has to be deleted.
func (t *Table) Repair(b Base, ports func() ([]Port, error)) error {
	b, err := b.checked()
	if err == nil {
		err = t.rebuild(b.layout(), ports)
	}
	if err != nil {
		return fmt.Errorf("recreate nftables table inet %s: %w", tableName, err)
	}
	return nil
}

// stamp returns the comment of the first rule of a chain, "" for none.
func (t *Table) stamp(chain string) (string, error) {
	rules, err := t.rules(chain)
	if err != nil || len(rules) == 0 {
		return "", err
	}
	return ruleComment(rules[0]), nil
}

// write rewrites chains and rules, unless another process has done so by then. It
// creates a table of another version, and one whose chains or maps are of another
// kind, again.
func (t *Table) write(base Base, have string, ports func() ([]Port, error)) (changed bool, err error) {
	chains := base.layout()
	if have != "" && !strings.HasPrefix(have, stampPrefix) {
		return true, t.rebuild(chains, ports)
	}
	var lost []Port
	err = t.retry(func(generation uint32) error {
		have, err := t.stamp(chainGuard)
		if changed = have != base.stamp(); err != nil || !changed {
			lost = nil
			return err
		}
		if _, lost, err = t.restorable(ports); err != nil {
			return err
		}
		b := t.begin(generation)
		b.newTable(tableComment)
		b.newSets(portSets())
		b.newChains(chains)
		for _, c := range chains {
			b.flush(c.Name)
		}
		b.newRules(chains)
		b.addPorts(lost)
		return t.commit(b)
	})
	if misshapen(err) {
		return true, t.rebuild(chains, ports)
	}
	if err == nil {
		err = t.deleteStaleConnections(nil, lost)
	}
	return changed, err
}

// misshapen reports whether a transaction failed because a chain or a map exists
// and is of another kind.
func misshapen(err error) bool {
	var refused *messageError
	if !errors.As(err, &refused) {
		return false
	}
	switch uint16(refused.message.Header.Type) & 0xff {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWRULE:
		return true
	}
	return false
}

// rebuild creates the contents of the table again, and keeps its host ports and
// services. Services are lost if the kernel refuses to delete the rest, and if the table is
// dormant: the kernel cannot wake a table whose chains change in the same transaction. After
// another error, such as one of ports, nothing has changed.
func (t *Table) rebuild(chains []chain, ports func() ([]Port, error)) error {
	var lost []Port
	err := t.verifyAwake()
	if err == nil {
		lost, err = t.remake(chains, ports, t.dropOthers)
	}
	if Differs(err) || errors.As(err, new(*messageError)) {
		t.services = nil
		lost, err = t.remake(chains, ports, func(b *batch) error {
			b.deleteTable()
			b.newTable(tableComment)
			return nil
		})
	}
	if err != nil {
		return err
	}
	return t.deleteStaleConnections(nil, lost)
}

// remake writes all but services, with the existing host ports and the lost ones.
// clear deletes what exists.
func (t *Table) remake(chains []chain, ports func() ([]Port, error), clear func(b *batch) error) (lost []Port, err error) {
	err = t.retry(func(generation uint32) (err error) {
		var have []Port
		if have, lost, err = t.restorable(ports); err != nil {
			return err
		}
		b := t.begin(generation)
		b.newTable(tableComment)
		if err := clear(b); err != nil {
			return err
		}
		b.newSets(portSets())
		b.newChains(chains)
		b.newRules(chains)
		b.addPorts(slices.Concat(have, lost))
		return t.commit(b)
	})
	return lost, err
}

// dropOthers deletes all that does not belong to services.
func (t *Table) dropOthers(b *batch) error {
	chains, sets, err := t.named(func(name string) bool { return !ofServices(name) })
	if err == nil {
		b.drop(chains, sets)
	}
	return err
}

// restorable returns the existing host ports, and those that were lost and can be
// added again. If the rules change while it reads, the kernel refuses the transaction of
// the caller, which names the generation that was read before.
func (t *Table) restorable(ports func() ([]Port, error)) (have, lost []Port, err error) {
	if have, err = t.allPorts(); err != nil || ports == nil {
		return have, nil, err
	}
	want, err := ports()
	if err != nil {
		return nil, nil, fmt.Errorf("determine desired host ports: %w", err)
	}
	return have, lostOf(have, want), nil
}

// lostOf returns the wanted ports that do not exist and do not make the kernel
// refuse the transaction.
func lostOf(have, want []Port) (lost []Port) {
	taken, used := make(portSet, len(want)), map[portMap]uint32{}
	for _, p := range have {
		taken.add(p)
		used[mapOf(p)]++
	}
	for _, p := range want {
		p, err := p.checked()
		if err != nil {
			continue
		}
		m := mapOf(p)
		if _, collides := taken.against(p); collides || used[m] >= m.size {
			continue
		}
		taken.add(p)
		used[m]++
		lost = append(lost, p)
	}
	return lost
}
