package nft

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// SyncServices changes the table to that of all services, in one transaction with only the
// differences from what this Table wrote before. The first call, and a call after another
// process flushed the rules or created the table again, replaces all that exists. The
// error is ErrNoTable without the table. After an error nothing has changed, except after
// an error of deleting connections. If two services claim the same address and port, the
// one whose cluster IP it is gets it, or else the first by name. An invalid service is an
// error. No service gets what is in apart.
func (t *Table) SyncServices(all []Service, apart Apart) error {
	want, err := plan(all)
	if err != nil {
		return fmt.Errorf("sync services: %w", err)
	}
	apart = apart.checked()
	have, err := t.written(apart)
	if err == nil && have != nil {
		err = t.change(have, want)
		if conflicts(err) {
			have, err = nil, nil // another process has changed it
		}
	}
	if err == nil && have == nil {
		err = t.replaceServices(want, apart)
	}
	if err != nil {
		t.services = nil
		return fmt.Errorf("sync services: %w", err)
	}
	t.services = want
	return t.deleteStaleConnections(want.flowChanges(have))
}

// written returns what this Table wrote, nil if the chains that all services share are
// missing or edited. It does not read the chains of single services.
func (t *Table) written(apart Apart) (*services, error) {
	if t.services == nil {
		return nil, nil
	}
	for _, c := range serviceChains(apart) {
		have, err := t.rules(c.Name)
		if err != nil || !slices.EqualFunc(c.rules, have, (*rule).is) {
			return nil, err
		}
	}
	return t.services, nil
}

// conflicts reports whether the kernel has other objects than expected.
func conflicts(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY)
}

// replaceServices deletes all that belongs to services, and writes what is wanted.
// Endpoints keep their clients, unless another version created their sets with other
// attributes.
func (t *Table) replaceServices(want *services, apart Apart) error {
	err := t.replaceExcept(want.sticky, want, apart)
	if errors.Is(err, unix.EEXIST) {
		err = t.replaceExcept(nil, want, apart)
	}
	return t.noTable(err)
}

// replaceExcept is replaceServices, and keeps the sets with the names in keep.
func (t *Table) replaceExcept(keep map[string]sticky, want *services, apart Apart) error {
	return t.retry(func(generation uint32) error {
		chains, sets, err := t.named(ofServices)
		if err != nil {
			return err
		}
		sets = slices.DeleteFunc(sets, func(name string) bool { _, kept := keep[name]; return kept })
		b := t.begin(generation)
		b.drop(chains, sets)
		b.newSets(serviceSets())
		b.newChains(serviceChains(apart))
		b.newRules(serviceChains(apart))
		b.change(&services{}, want)
		return t.commit(b)
	})
}

// named lists the chains and sets whose names are selected. It leaves out sets
// that the kernel deletes with their rules.
func (t *Table) named(selected func(name string) bool) (chains, sets []string, err error) {
	listedChains, err := t.chains()
	if err != nil {
		return nil, nil, err
	}
	for _, a := range listedChains {
		if name := a.text(unix.NFTA_CHAIN_NAME); selected(name) {
			chains = append(chains, name)
		}
	}
	listedSets, err := t.sets()
	for _, a := range listedSets {
		anonymous := a.number(unix.NFTA_SET_FLAGS)&unix.NFT_SET_ANONYMOUS != 0
		if name := a.text(unix.NFTA_SET_NAME); selected(name) && !anonymous {
			sets = append(sets, name)
		}
	}
	return chains, sets, err
}

// ClearServices removes all that SyncServices of any process has written. It returns nil
// if there is nothing, or no table.
func (t *Table) ClearServices() error {
	t.services = nil
	err := t.retry(func(generation uint32) error {
		chains, sets, err := t.named(ofServices)
		if err != nil || len(chains)+len(sets) == 0 {
			return err
		}
		b := t.begin(generation)
		b.drop(chains, sets)
		return t.commit(b)
	})
	if err = ignoreAbsent(err); err != nil {
		return fmt.Errorf("remove services: %w", err)
	}
	return nil
}

// drop deletes chains and sets that may refer to each other.
func (b *batch) drop(chains, sets []string) {
	for _, name := range chains {
		b.flush(name)
	}
	for _, name := range sets {
		b.deleteSet(name)
	}
	for _, name := range chains {
		b.deleteChain(name)
	}
}

// change sends the differences.
func (t *Table) change(have, want *services) error {
	b := t.begin(0)
	b.change(have, want)
	if b.empty() {
		return nil
	}
	return t.commit(b)
}

// change adds the differences. Chains exist before the rules that jump to them,
// and are deleted after these.
func (b *batch) change(have, want *services) {
	picks := differenceOf(have.picks, want.picks, strings.Compare, pick.same)
	ends := differenceOf(have.sticky, want.sticky, strings.Compare, equal[sticky])
	outer := differenceOf(have.external, want.external, strings.Compare, equal[external])
	for _, name := range slices.Concat(ends.added, picks.added, outer.added) {
		b.newChains([]chain{jumped(name)})
	}
	for _, d := range []difference[string]{outer, picks, ends} {
		for _, name := range slices.Concat(d.altered, d.removed) {
			b.flush(name)
		}
	}
	// The set of clients exists as long as its endpoint.
	for _, name := range ends.removed {
		b.deleteSet(name)
	}
	for _, name := range ends.added {
		b.newSet(want.sticky[name].clients(name))
	}
	for _, name := range slices.Concat(ends.added, ends.altered) {
		want.sticky[name].write(b, name)
	}
	for _, name := range slices.Concat(picks.added, picks.altered) {
		want.picks[name].write(b, name)
	}
	for _, name := range slices.Concat(outer.added, outer.altered) {
		want.external[name].write(b, name)
	}
	b.changeVerdicts(have.verdicts, want.verdicts)
	for _, name := range slices.Concat(outer.removed, picks.removed, ends.removed) {
		b.deleteChain(name)
	}
}

func equal[V comparable](a, b V) bool { return a == b }

// difference is the keys of two maps: those that only the new one has, those with
// another value, and those that only the old one has.
type difference[K comparable] struct{ added, altered, removed []K }

// differenceOf compares two maps. The keys are sorted.
func differenceOf[K comparable, V any](have, want map[K]V, order func(a, b K) int, same func(a, b V) bool) (d difference[K]) {
	for k, v := range want {
		old, exists := have[k]
		switch {
		case !exists:
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

func (e entry) compare(other entry) int { return strings.Compare(e.key, other.key) }

// elementsIn returns those of some elements that are in one set, with their verdicts
// if it is a verdict map.
func elementsIn(set string, some []entry, verdicts map[entry]expr.Verdict) (elements []nftables.SetElement) {
	for _, e := range some {
		if e.set != set {
			continue
		}
		element := nftables.SetElement{Key: []byte(e.key)}
		if to, ok := verdicts[e]; ok {
			element.VerdictData = &to
		}
		elements = append(elements, element)
	}
	return elements
}

// changeVerdicts changes the elements of the verdict maps.
func (b *batch) changeVerdicts(have, want map[entry]expr.Verdict) {
	d := differenceOf(have, want, entry.compare, equal[expr.Verdict])
	for _, s := range serviceSets() {
		b.deleteElements(s.Name, elementsIn(s.Name, slices.Concat(d.removed, d.altered), nil))
		b.addElements(s.Name, elementsIn(s.Name, slices.Concat(d.added, d.altered), want))
	}
}

// flowChanges returns the paths of UDP and SCTP that no longer exist, and all
// paths from addresses and ports that had none. have may be nil.
func (p *services) flowChanges(have *services) (gone, fresh []Port) {
	if have == nil {
		return nil, slices.Collect(maps.Keys(p.flows))
	}
	from := map[Port]bool{}
	for flow := range have.flows {
		if !p.flows[flow] {
			gone = append(gone, flow)
		}
		from[flow.from()] = true
	}
	for flow := range p.flows {
		if !from[flow.from()] {
			fresh = append(fresh, flow)
		}
	}
	return gone, fresh
}

// from returns the path without its end.
func (p Port) from() Port {
	return Port{HostIP: p.HostIP, Protocol: p.Protocol, Host: p.Host, Pod: unspecified(p.Pod)}
}
