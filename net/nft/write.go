package nft

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// write rewrites chains and rules in place, unless another has done so by then.
// A table of another version, and one whose chains or maps are not what they
// should be, is made anew.
func (t *Table) write(chains []chain, have string, ports func() ([]Port, error)) (changed bool, err error) {
	if have != "" && !strings.HasPrefix(have, stampPrefix) {
		return true, t.rebuild(chains, ports)
	}
	var lost []Port
	err = t.retry(func(generation uint32) error {
		have, err := t.stamp()
		if changed = have != stampOf(chains); err != nil || !changed {
			lost = nil
			return err
		}
		if _, lost, err = t.restorable(ports); err != nil {
			return err
		}
		t.begin(generation)
		t.rewrite(chains)
		t.putPorts(lost)
		return t.commit()
	})
	if t.misshapen(err) {
		return true, t.rebuild(chains, ports)
	}
	if err == nil {
		err = t.forget(nil, lost)
	}
	return changed, err
}

// rewrite puts all but the maps' elements into the transaction.
func (t *Table) rewrite(chains []chain) {
	t.newTable()
	t.newSets()
	t.newChains(chains)
	for _, c := range chains {
		t.flush(c.name)
	}
	t.newRules(chains)
}

// misshapen says that a chain or a map is there, but a different one.
func (t *Table) misshapen(err error) bool {
	var said *netlink.Error
	if !errors.As(err, &said) || said.Index >= len(t.commands) {
		return false
	}
	kind := t.commands[said.Index].kind
	return kind == unix.NFT_MSG_NEWCHAIN || kind == unix.NFT_MSG_NEWSET || kind == unix.NFT_MSG_NEWRULE
}

// rebuild makes the table anew, with the host ports and services it has. These
// are lost if what somebody has put into the table does not let go otherwise, or
// it sleeps: kernels do not wake a table whose chains change at the same time.
func (t *Table) rebuild(chains []chain, ports func() ([]Port, error)) error {
	var lost []Port
	err := t.verifyTable(nil)
	if err == nil {
		lost, err = t.remake(chains, ports, t.dropOthers)
	}
	if err != nil {
		t.services = nil
		lost, err = t.remake(chains, ports, func() error {
			t.deleteTable()
			t.newTable()
			return nil
		})
	}
	if err != nil {
		return err
	}
	return t.forget(nil, lost)
}

// remake makes all but services anew, with the host ports that there are and
// those that were lost. Clear writes what takes away what is there.
func (t *Table) remake(chains []chain, ports func() ([]Port, error), clear func() error) (lost []Port, err error) {
	err = t.retry(func(generation uint32) (err error) {
		var have []Port
		if have, lost, err = t.restorable(ports); err != nil {
			return err
		}
		t.begin(generation)
		t.newTable()
		if err := clear(); err != nil {
			return err
		}
		t.newSets()
		t.newChains(chains)
		t.newRules(chains)
		t.putPorts(slices.Concat(have, lost))
		return t.commit()
	})
	return lost, err
}

// dropOthers deletes all that is not of services.
func (t *Table) dropOthers() error {
	chains, sets, err := t.named(func(name string) bool { return !ofServices(name) })
	if err == nil {
		t.drop(chains, sets)
	}
	return err
}

func (t *Table) newTable() { t.newTableWith(tableComment) }

// newTableWith makes the table with a comment for people.
func (t *Table) newTableWith(comment string) {
	t.command(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
	t.batch.String(unix.NFTA_TABLE_NAME, tableName)
	t.batch.Net32(unix.NFTA_TABLE_FLAGS, 0)
	t.batch.Bytes(tableUserdata, userdata(commentOfTable, comment))
}

func (t *Table) deleteTable() {
	t.command(unix.NFT_MSG_DELTABLE, 0)
	t.batch.String(unix.NFTA_TABLE_NAME, tableName)
}

func (t *Table) newSets() {
	for _, m := range portMaps {
		t.newSet(m.set())
	}
}

// newSet makes a set or map.
func (t *Table) newSet(s set) {
	t.sets++
	t.command(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	t.batch.String(unix.NFTA_SET_TABLE, tableName)
	t.batch.String(unix.NFTA_SET_NAME, s.name)
	t.batch.Net32(unix.NFTA_SET_ID, t.sets)
	t.batch.Net32(unix.NFTA_SET_FLAGS, s.flags)
	t.batch.Net32(unix.NFTA_SET_KEY_TYPE, s.keyType)
	t.batch.Net32(unix.NFTA_SET_KEY_LEN, s.keyLen)
	if s.flags&setMap != 0 {
		t.batch.Net32(unix.NFTA_SET_DATA_TYPE, s.dataType)
		t.batch.Net32(unix.NFTA_SET_DATA_LEN, s.valLen)
	}
	if s.size != 0 {
		desc := t.batch.Nest(unix.NFTA_SET_DESC)
		t.batch.Net32(unix.NFTA_SET_DESC_SIZE, s.size)
		t.batch.End(desc)
	}
	data := userdata(commentOfSet, s.comment)
	if s.keyType == typeName { // names are listed as text only so
		data = append(data, keyOrder()...)
	}
	t.batch.Bytes(setUserdata, data)
}

func (t *Table) newChains(chains []chain) {
	for _, c := range chains {
		t.newChain(c)
	}
}

func (t *Table) newChain(c chain) {
	t.command(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	t.batch.String(unix.NFTA_CHAIN_TABLE, tableName)
	t.batch.String(unix.NFTA_CHAIN_NAME, c.name)
	if c.kind == "" {
		return
	}
	t.batch.String(unix.NFTA_CHAIN_TYPE, c.kind)
	t.batch.Net32(unix.NFTA_CHAIN_POLICY, verdictAccept)
	hook := t.batch.Nest(unix.NFTA_CHAIN_HOOK)
	t.batch.Net32(unix.NFTA_HOOK_HOOKNUM, c.hook)
	t.batch.Net32(unix.NFTA_HOOK_PRIORITY, uint32(c.priority))
	t.batch.End(hook)
}

// flush deletes all rules of a chain.
func (t *Table) flush(chain string) {
	t.command(unix.NFT_MSG_DELRULE, 0)
	t.batch.String(unix.NFTA_RULE_TABLE, tableName)
	t.batch.String(unix.NFTA_RULE_CHAIN, chain)
}

func (t *Table) newRules(chains []chain) {
	for _, c := range chains {
		for _, r := range c.rules {
			t.newRule(c.name, r)
		}
	}
}

func (t *Table) newRule(chain string, r *rule) {
	t.command(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	t.commands[len(t.commands)-1].code = r.code
	t.batch.String(unix.NFTA_RULE_TABLE, tableName)
	t.batch.String(unix.NFTA_RULE_CHAIN, chain)
	t.batch.Bytes(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, r.code)
	if r.comment != "" {
		t.batch.Bytes(unix.NFTA_RULE_USERDATA, userdata(commentOfRule, r.comment))
	}
}
