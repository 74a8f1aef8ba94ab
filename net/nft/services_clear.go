package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ClearServices removes all that SyncServices has made, by whomever it was
// called. It is nil if there is nothing, or no table.
func (t *Table) ClearServices() error {
	t.services = nil
	err := t.retry(func(generation uint32) error {
		chains, sets, err := t.named(ofServices)
		if err != nil || len(chains)+len(sets) == 0 {
			return err
		}
		t.begin(generation)
		t.drop(chains, sets)
		return t.commit()
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove services: %w", err)
	}
	return nil
}

// drop deletes chains and sets that may lead to each other.
func (t *Table) drop(chains, sets []string) {
	for _, name := range chains {
		t.flush(name)
	}
	for _, name := range sets {
		t.deleteSet(name)
	}
	for _, name := range chains {
		t.deleteChain(name)
	}
}
