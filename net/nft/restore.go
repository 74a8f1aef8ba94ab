package nft

import "fmt"

// restorable is which ports there are, and which of those that there are to be
// were lost and can be put back. Both are of the generation that is known before,
// or its transaction is refused.
func (t *Table) restorable(ports func() ([]Port, error)) (have, lost []Port, err error) {
	if have, err = t.allPorts(); err != nil || ports == nil {
		return have, nil, err
	}
	want, err := ports()
	if err != nil {
		return nil, nil, fmt.Errorf("find out which host ports there are to be: %w", err)
	}
	return have, lostOf(have, want), nil
}

// lostOf are ports that are not there, as far as none keeps the transaction from
// being carried out.
func lostOf(have, want []Port) (lost []Port) {
	taken, used := make(slots, len(want)), map[portMap]uint32{}
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
		if _, is := taken.against(p); is || used[m] >= m.set().size {
			continue
		}
		taken.add(p)
		used[m]++
		lost = append(lost, p)
	}
	return lost
}
