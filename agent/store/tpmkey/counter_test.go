package tpmkey

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// counterOf returns the counter for a key that the emulator has sealed.
func counterOf(t *testing.T, e *emulator) *Counter {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.tpm")
	if err := os.WriteFile(path, sealed(t, e).Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	return NewCounter(path, e.socket)
}

func TestCounter(t *testing.T) {
	e := newEmulator(t)
	c := counterOf(t, e)
	if _, _, _, err := c.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no counter: %v", err)
	}
	if err := c.Advance(1); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("advance without a counter: %v", err)
	}
	id, first, err := c.Begin()
	if err != nil || id == [16]byte{} {
		t.Fatalf("id %x, %v", id, err)
	}
	check := func(want uint64, wantBound bool) {
		t.Helper()
		got, generation, bound, err := c.Read()
		if err != nil || got != id || generation != want || bound != wantBound {
			t.Errorf("id %x, generation %d, bound %v, %v; want %x, %d, %v", got, generation, bound, err, id, want, wantBound)
		}
	}
	check(first, false)
	for _, step := range []struct{ to, want uint64 }{{first + 1, first + 1}, {first + 1, first + 1}, {first + 4, first + 4}, {first, first + 4}} {
		if err := c.Advance(step.to); err != nil {
			t.Fatal(err)
		}
		check(step.want, true)
	}
	e.stop()
	e.start()
	check(first+4, true)
	if n := e.loaded(); n > 0 {
		t.Errorf("%d objects and sessions are left in the TPM", n)
	}
	// A counter that was deleted begins above what it had, with another id.
	e.do(func(c transport.TPM) error { return undefine(c, counterIndex) })
	if _, _, _, err := c.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a counter that was deleted: %v", err)
	}
	was, old := first+4, id
	if id, first, err = c.Begin(); err != nil || first <= was || id == old {
		t.Fatalf("id %x, generation %d after %d, %v", id, first, was, err)
	}
	check(first, false)
}

// TestCounterOfNothing checks that a missing key file or device does not mean that there is
// no counter.
func TestCounterOfNothing(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	key := filepath.Join(t.TempDir(), "journal.tpm")
	if err := os.WriteFile(key, made().Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*Counter{"no key file": NewCounter(none, none), "no device": NewCounter(key, none)} {
		if _, _, _, err := c.Read(); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), none) {
			t.Errorf("%s: read: %v", name, err)
		}
		if _, _, err := c.Begin(); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: begin: %v", name, err)
		}
	}
}

// TestSourceNamesItsStepOnce checks the error of a key that cannot be unsealed.
func TestSourceNamesItsStepOnce(t *testing.T) {
	key := filepath.Join(t.TempDir(), "journal.tpm")
	if err := os.WriteFile(key, made().Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Source(key, key+".none")(); err == nil || strings.Count(err.Error(), "unseal") != 1 {
		t.Errorf("error %v", err)
	}
}

// TestCounterCutInBegin cuts the power between the creation of the counter and its
// first increment.
func TestCounterCutInBegin(t *testing.T) {
	e := newEmulator(t)
	c := counterOf(t, e)
	policy := append(bytes.Repeat([]byte{7}, idSize), make([]byte, 16)...)
	e.do(func(t transport.TPM) error { return define(t, counterIndex, tpm2.TPMNTCounter, counterSize, policy) })
	id, first, bound, err := c.Read()
	if err != nil || first == 0 || bound || !bytes.Equal(id[:], policy[:idSize]) {
		t.Fatalf("id %x, generation %d, bound %v, %v", id, first, bound, err)
	}
	if _, again, _, err := c.Read(); err != nil || again != first {
		t.Errorf("generation %d, then %d, %v", first, again, err)
	}
}

func TestCounterRefuses(t *testing.T) {
	e := newEmulator(t)
	c := counterOf(t, e)
	// An index of somebody else is left alone.
	e.do(func(t transport.TPM) error { return define(t, counterIndex, tpm2.TPMNTOrdinary, 8, nil) })
	if _, _, _, err := c.Read(); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "tpm2_nvundefine") {
		t.Errorf("another's index: %v", err)
	}
	if err := c.Advance(1); err == nil {
		t.Error("another's index was advanced")
	}
	if _, _, err := c.Begin(); err == nil {
		t.Error("another's index was replaced")
	}
	other := newEmulator(t)
	c.device = other.socket
	if _, _, _, err := c.Read(); !errors.Is(err, errOtherTPM) {
		t.Errorf("another TPM: %v", err)
	}
	c.key = filepath.Join(t.TempDir(), "none")
	if _, _, _, err := c.Read(); err == nil {
		t.Error("no sealed key")
	}
}

// TestCounterIsAuthenticated changes the counter's value in the response, as an
// attacker on the bus would.
func TestCounterIsAuthenticated(t *testing.T) {
	e := newEmulator(t)
	c := counterOf(t, e)
	if _, _, err := c.Begin(); err != nil {
		t.Fatal(err)
	}
	e.do(func(inner transport.TPM) error {
		r, err := createStorageRootKey(inner)
		if err != nil {
			return err
		}
		defer flush(inner, r.handle)
		index, err := readIndex(inner, counterIndex)
		if err != nil {
			return err
		}
		value, err := index.read(inner, r)
		if err != nil {
			return err
		}
		if got, err := index.read(&liar{TPM: inner}, r); err == nil {
			t.Errorf("the value is %d, and %d was believed", value, got)
		}
		return nil
	})
}

// liar changes the responses to NV_Read.
type liar struct{ transport.TPM }

func (l *liar) Send(command []byte) ([]byte, error) {
	response, err := l.TPM.Send(command)
	code := uint32(command[6])<<24 | uint32(command[7])<<16 | uint32(command[8])<<8 | uint32(command[9])
	if err == nil && tpm2.TPMCC(code) == tpm2.TPMCCNVRead {
		response[10+4+2+counterSize-1] ^= 0x40 // after header, size of parameters and size of the data
	}
	return response, err
}
