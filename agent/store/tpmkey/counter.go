package tpmkey

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// Indexes of the TPM's non-volatile storage, in the range of the owner
// (0x01800000 to 0x01bfffff).
const (
	// counterIndex is an NV counter. Its authPolicy, which authorizes nothing,
	// holds the anchor's id.
	counterIndex = tpm2.TPMHandle(0x01b74a72)
	// boundIndex exists once the counter is bound. It is never written.
	boundIndex = tpm2.TPMHandle(0x01b74a73)
)

const (
	counterSize = 8
	idSize      = 16
)

// Steps, as errors name them.
const (
	stepDefine    = "define counter"
	stepUndefine  = "undefine counter"
	stepCounter   = "read counter"
	stepIncrement = "increment counter"
)

// Counter is an anchor of the journal's generation (journal.Anchor): a counter
// in the TPM that cannot be set back. If it is deleted and created again, the TPM
// starts it above each value that a counter had before. Each method blocks on
// the TPM, for seconds.
//
// Responses are authenticated by sessions that are salted with the storage root
// key under which the key was sealed, so that no device on the bus can
// impersonate the TPM.
type Counter struct {
	key    string // the file of the sealed key
	device string
}

// NewCounter returns the counter for the journal of a sealed key. It does not
// access the TPM.
func NewCounter(key, device string) *Counter { return &Counter{key: key, device: device} }

// Read returns the counter's id and value, and whether Advance was ever called. The error
// wraps fs.ErrNotExist only if there is no counter.
func (c *Counter) Read() (id [16]byte, generation uint64, bound bool, err error) {
	err = c.with(func(t transport.TPM, r *storageRootKey) error {
		index, err := readIndex(t, counterIndex)
		if err != nil {
			return err
		}
		if id, err = index.counterID(); err != nil {
			return err
		}
		if !index.public.Attributes.Written { // the power was cut in Begin
			if index, err = index.initialize(t, r); err != nil {
				return err
			}
		}
		if generation, err = index.read(t, r); err != nil {
			return err
		}
		_, err = readIndex(t, boundIndex)
		bound = err == nil
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	return id, generation, bound, err
}

// Begin creates the counter with a new id. It is not bound yet. Begin removes the
// bound mark of a previous counter.
func (c *Counter) Begin() (id [16]byte, generation uint64, err error) {
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	err = c.with(func(t transport.TPM, r *storageRootKey) error {
		if err := undefine(t, boundIndex); err != nil {
			return err
		}
		policy := make([]byte, nameSize-2)
		copy(policy, id[:])
		if err := define(t, counterIndex, tpm2.TPMNTCounter, counterSize, policy); err != nil {
			return err
		}
		index, err := readIndex(t, counterIndex)
		if err != nil {
			return err
		}
		if index, err = index.initialize(t, r); err != nil {
			return err
		}
		generation, err = index.read(t, r)
		return err
	})
	return id, generation, err
}

// Advance increments the counter up to a generation and binds it.
func (c *Counter) Advance(generation uint64) error {
	return c.with(func(t transport.TPM, r *storageRootKey) error {
		for {
			index, err := readIndex(t, counterIndex)
			if err != nil {
				return err
			}
			if _, err := index.counterID(); err != nil {
				return err
			}
			have, err := index.read(t, r)
			if err != nil {
				return err
			}
			if have >= generation {
				break
			}
			if err := index.increment(t, r); err != nil {
				return err
			}
		}
		_, err := readIndex(t, boundIndex)
		if errors.Is(err, fs.ErrNotExist) {
			err = define(t, boundIndex, tpm2.TPMNTOrdinary, 1, nil)
		}
		return err
	})
}

// with calls do with the TPM if it is the one that sealed the key, else it returns
// errOtherTPM.
func (c *Counter) with(do func(transport.TPM, *storageRootKey) error) error {
	s, err := ReadFile(c.key)
	asked := false // whether there is a counter
	if err == nil {
		err = withTPM(c.device, tpmTimeout, func(t transport.TPM) error {
			r, err := createStorageRootKey(t)
			if err != nil {
				return err
			}
			defer flush(t, r.handle)
			if !bytes.Equal(r.name.Buffer, s.parent) {
				return errOtherTPM
			}
			asked = true
			return do(t, r)
		})
	}
	if !asked && errors.Is(err, fs.ErrNotExist) {
		// Without %w: fs.ErrNotExist means that there is no counter.
		return fmt.Errorf("access journal counter in TPM %s: %v", c.device, err) //nolint:errorlint // see above
	}
	if err != nil {
		return fmt.Errorf("access journal counter in TPM %s: %w", c.device, err)
	}
	return nil
}

// nvIndex is the public area of an NV index, and its name.
type nvIndex struct {
	public tpm2.TPMSNVPublic
	name   tpm2.TPM2BName
}

// readIndex reads the public area of an index. The error wraps fs.ErrNotExist if
// there is no such index.
func readIndex(t transport.TPM, handle tpm2.TPMHandle) (*nvIndex, error) {
	answer, err := tpm2.NVReadPublic{NVIndex: handle}.Execute(t)
	if errors.Is(err, tpm2.TPMRCHandle) {
		return nil, &stepError{stepCounter, fmt.Errorf("index %#x: %w", uint32(handle), fs.ErrNotExist)}
	}
	if err != nil {
		return nil, &stepError{stepCounter, err}
	}
	public, err := answer.NVPublic.Contents()
	if err != nil {
		return nil, &stepError{stepCounter, err}
	}
	// Compute the name instead of using the TPM's: sessions authenticate it.
	name, err := tpm2.NVName(public)
	if err != nil {
		return nil, &stepError{stepCounter, err}
	}
	return &nvIndex{public: *public, name: *name}, nil
}

// counterID returns the id in a counter index. It fails if tinylet did not create
// the index.
func (x *nvIndex) counterID() (id [16]byte, err error) {
	policy := x.public.AuthPolicy.Buffer
	want := attributes(tpm2.TPMNTCounter)
	want.Written = x.public.Attributes.Written
	if x.public.NVIndex != counterIndex || x.public.Attributes != want || len(policy) != nameSize-2 || !bytes.Equal(policy[idSize:], make([]byte, nameSize-2-idSize)) {
		return id, &stepError{stepCounter, fmt.Errorf("index %#x is not tinylet's: delete it with tpm2_nvundefine if it is unused", uint32(counterIndex))}
	}
	copy(id[:], policy)
	return id, nil
}

// auth returns an authorization for the index, whose password is empty, by a
// session that authenticates the TPM's response.
func (x *nvIndex) auth(r *storageRootKey) tpm2.AuthHandle {
	return tpm2.AuthHandle{Handle: x.public.NVIndex, Name: x.name, Auth: tpm2.HMAC(tpm2.TPMAlgSHA256, nonceSize, tpm2.Salted(r.handle, r.public))}
}

func (x *nvIndex) read(t transport.TPM, r *storageRootKey) (uint64, error) {
	answer, err := tpm2.NVRead{AuthHandle: x.auth(r), NVIndex: tpm2.NamedHandle{Handle: x.public.NVIndex, Name: x.name}, Size: counterSize}.Execute(t)
	if err != nil {
		return 0, &stepError{stepCounter, err}
	}
	if len(answer.Data.Buffer) != counterSize {
		return 0, &stepError{stepCounter, fmt.Errorf("value has %d bytes", len(answer.Data.Buffer))}
	}
	return binary.BigEndian.Uint64(answer.Data.Buffer), nil
}

func (x *nvIndex) increment(t transport.TPM, r *storageRootKey) error {
	if _, err := (tpm2.NVIncrement{AuthHandle: x.auth(r), NVIndex: tpm2.NamedHandle{Handle: x.public.NVIndex, Name: x.name}}).Execute(t); err != nil {
		return &stepError{stepIncrement, err}
	}
	return nil
}

// initialize increments a new counter, which has no value before that, and reads the
// index again: its name changes with the first write.
func (x *nvIndex) initialize(t transport.TPM, r *storageRootKey) (*nvIndex, error) {
	if err := x.increment(t, r); err != nil {
		return nil, err
	}
	return readIndex(t, x.public.NVIndex)
}

// attributes returns the attributes of an index that tinylet creates. It has no
// password, so it needs no protection from dictionary attacks.
func attributes(kind tpm2.TPMNT) tpm2.TPMANV {
	return tpm2.TPMANV{AuthWrite: true, AuthRead: true, NoDA: true, NT: kind}
}

func define(t transport.TPM, handle tpm2.TPMHandle, kind tpm2.TPMNT, size uint16, policy []byte) error {
	_, err := tpm2.NVDefineSpace{
		AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
		PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{
			NVIndex: handle, NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes(kind),
			AuthPolicy: tpm2.TPM2BDigest{Buffer: policy}, DataSize: size,
		}),
	}.Execute(t)
	if err != nil {
		return &stepError{stepDefine, err}
	}
	return nil
}

func undefine(t transport.TPM, handle tpm2.TPMHandle) error {
	index, err := readIndex(t, handle)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = tpm2.NVUndefineSpace{
		AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
		NVIndex:    tpm2.NamedHandle{Handle: handle, Name: index.name},
	}.Execute(t)
	if err != nil {
		return &stepError{stepUndefine, err}
	}
	return nil
}
