package nft

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// SyncServices makes what the table has for services that of all, in one
// transaction with only what differs from what this Table has written before.
// The first call, and one after the rules were flushed or the table was made
// anew by anybody, replaces all that is there. The table has to be there
// (ErrNoTable). After an error nothing has changed but, if it says so,
// connections that were not forgotten. Where two services claim the same
// address and port, one whose cluster IP it is has it, or the first by name; one
// that makes no sense is an error. What is Apart no service has, whatever it
// claims.
func (t *Table) SyncServices(all []Service, apart Apart) error {
	want, err := plan(all)
	if err != nil {
		return fmt.Errorf("make services: %w", err)
	}
	apart = apart.checked()
	have, err := t.wrote(apart)
	if err == nil && have != nil {
		err = t.change(have, want)
		if conflicts(err) {
			have, err = nil, nil // somebody else has changed it
		}
	}
	if err == nil && have == nil {
		err = t.renew(want, apart)
	}
	if err != nil {
		t.services = nil
		return fmt.Errorf("make services: %w", err)
	}
	t.services = want
	return t.forget(want.changes(have))
}

// ofServices says whether SyncServices makes what has such a name.
func ofServices(name string) bool { return strings.HasPrefix(name, servicePrefix) }

// wrote is what this Table has written, nil if it is not there any more: what
// stands before the services' own chains is then gone, or was edited.
func (t *Table) wrote(apart Apart) (*services, error) {
	if t.services == nil {
		return nil, nil
	}
	for _, c := range serviceChains(apart) {
		var have [][]byte
		err := t.eachRule(c.name, func(_ string, a []byte) { have = append(have, a) })
		if err != nil || !slices.EqualFunc(c.rules, have, (*rule).is) {
			return nil, err
		}
	}
	return t.services, nil
}

// conflicts says that the kernel has something else than was thought.
func conflicts(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY)
}

// renew deletes all that is of services, whoever made it, and makes what is
// wanted. Endpoints keep the clients that they have, unless an older agent noted
// them in another way.
func (t *Table) renew(want *services, apart Apart) error {
	err := t.beginAnew(want, want.ends, apart)
	if errors.Is(err, unix.EEXIST) {
		err = t.beginAnew(want, nil, apart)
	}
	if errors.Is(err, unix.ENOENT) {
		return ErrNoTable
	}
	return err
}

// beginAnew is renew, but for the sets of clients that are kept.
func (t *Table) beginAnew(want *services, keep map[string]sticky, apart Apart) error {
	return t.retry(func(generation uint32) error {
		chains, sets, err := t.named(ofServices)
		if err != nil {
			return err
		}
		sets = slices.DeleteFunc(sets, func(name string) bool { _, kept := keep[name]; return kept })
		t.begin(generation)
		t.drop(chains, sets)
		for _, f := range []family{ipv4, ipv6} {
			t.newSet(vipMap(f))
			t.newSet(nodePortMap(f))
		}
		t.newChains(serviceChains(apart))
		t.newRules(serviceChains(apart))
		t.put(&services{}, want)
		return t.commit()
	})
}

// named lists the chains and sets whose names are asked for. Sets that go with
// their rules have none.
func (t *Table) named(is func(name string) bool) (chains, sets []string, err error) {
	err = t.list(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, unix.NFTA_CHAIN_TABLE, "", func(a []byte) {
		if name := netlink.Text(netlink.Attribute(a, unix.NFTA_CHAIN_NAME)); is(name) {
			chains = append(chains, name)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	err = t.list(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, unix.NFTA_SET_TABLE, "", func(a []byte) {
		bound := net32(netlink.Attribute(a, unix.NFTA_SET_FLAGS))&unix.NFT_SET_ANONYMOUS != 0
		if name := netlink.Text(netlink.Attribute(a, unix.NFTA_SET_NAME)); is(name) && !bound {
			sets = append(sets, name)
		}
	})
	return chains, sets, err
}

// change sends what differs.
func (t *Table) change(have, want *services) error {
	t.begin(0)
	t.put(have, want)
	if len(t.commands) == 1 {
		return nil // nothing but the beginning
	}
	return t.commit()
}

// put writes what differs. What is jumped to is there before, and goes behind.
func (t *Table) put(have, want *services) {
	picks := changed(have.picks, want.picks, strings.Compare, pick.same)
	ends := changed(have.ends, want.ends, strings.Compare, equal[sticky])
	outers := changed(have.outer, want.outer, strings.Compare, equal[outer])
	for _, name := range slices.Concat(ends.added, picks.added, outers.added) {
		t.newChain(chain{name: name})
	}
	for _, d := range []difference[string]{outers, picks, ends} {
		for _, name := range slices.Concat(d.altered, d.removed) {
			t.flush(name)
		}
	}
	t.putClients(want.ends, ends)
	for _, name := range slices.Concat(ends.added, ends.altered) {
		want.ends[name].write(t, name)
	}
	for _, name := range slices.Concat(picks.added, picks.altered) {
		want.picks[name].write(t, name)
	}
	for _, name := range slices.Concat(outers.added, outers.altered) {
		want.outer[name].write(t, name)
	}
	t.putTargets(have.targets, want.targets)
	for _, name := range slices.Concat(outers.removed, picks.removed, ends.removed) {
		t.deleteChain(name)
	}
}

func equal[V comparable](a, b V) bool { return a == b }

// difference is the keys of one map that another has not, those that it has
// otherwise, and those that only the other has.
type difference[K comparable] struct{ added, altered, removed []K }

// changed compares two maps, in an order that is always the same.
func changed[K comparable, V any](have, want map[K]V, order func(a, b K) int, same func(a, b V) bool) (d difference[K]) {
	for k, v := range want {
		old, there := have[k]
		switch {
		case !there:
			d.added = append(d.added, k)
		case !same(old, v):
			d.altered = append(d.altered, k)
		}
	}
	for k := range have {
		if _, kept := want[k]; !kept {
			d.removed = append(d.removed, k)
		}
	}
	for _, keys := range [][]K{d.added, d.altered, d.removed} {
		slices.SortFunc(keys, order)
	}
	return d
}

// putClients makes and deletes the sets of clients. One lives as long as its
// endpoint.
func (t *Table) putClients(want map[string]sticky, d difference[string]) {
	for _, name := range d.removed {
		t.deleteSet(name)
	}
	for _, name := range d.added {
		t.newSet(want[name].clients(name))
	}
}

func (e entry) compare(other entry) int { return strings.Compare(e.key, other.key) }

// putTargets changes the elements of the verdict maps.
func (t *Table) putTargets(have, want map[entry]target) {
	d := changed(have, want, entry.compare, equal[target])
	for _, f := range []family{ipv4, ipv6} {
		for _, name := range []string{vipMap(f).name, nodePortMap(f).name} {
			t.targets(unix.NFT_MSG_DELSETELEM, 0, name, have, d.removed, d.altered)
			t.targets(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE|unix.NLM_F_EXCL, name, want, d.added, d.altered)
		}
	}
}

// targets writes those of some elements that are of one map.
func (t *Table) targets(kind, flags uint16, name string, all map[entry]target, some ...[]entry) {
	list := elementList{table: t, kind: kind, flags: flags, set: name}
	for _, e := range slices.Concat(some...) {
		if e.set != name {
			continue
		}
		list.next()
		element := t.batch.Nest(unix.NFTA_LIST_ELEM)
		putData(&t.batch, unix.NFTA_SET_ELEM_KEY, []byte(e.key))
		if kind == unix.NFT_MSG_NEWSETELEM {
			t.putVerdict(all[e])
		}
		t.batch.End(element)
	}
	list.end()
}

func (t *Table) deleteSet(name string) {
	t.command(unix.NFT_MSG_DELSET, 0)
	t.batch.String(unix.NFTA_SET_TABLE, tableName)
	t.batch.String(unix.NFTA_SET_NAME, name)
}

func (t *Table) deleteChain(name string) {
	t.command(unix.NFT_MSG_DELCHAIN, 0)
	t.batch.String(unix.NFTA_CHAIN_TABLE, tableName)
	t.batch.String(unix.NFTA_CHAIN_NAME, name)
}

// changes is which ways of UDP and SCTP are gone, and all ways from where there
// is a new one. Have may be nil.
func (p *services) changes(have *services) (gone, fresh []Port) {
	if have == nil {
		return nil, slices.Collect(maps.Keys(p.flows))
	}
	for way := range have.flows {
		if !p.flows[way] {
			gone = append(gone, way)
		}
	}
	from := map[Port]bool{}
	for way := range have.flows {
		from[way.from()] = true
	}
	for way := range p.flows {
		if !from[way.from()] {
			fresh = append(fresh, way)
		}
	}
	return gone, fresh
}

// from is the way without where it leads.
func (p Port) from() Port {
	return Port{HostIP: p.HostIP, Protocol: p.Protocol, Host: p.Host, Pod: unspecified(p.Pod)}
}
