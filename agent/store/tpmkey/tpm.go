package tpmkey

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// Source returns a source of a key for offline.Config.Key: it reads a file that
// this board's TPM sealed, and unseals the key. The source blocks on the TPM, for
// seconds.
func Source(path, device string) func() ([]byte, error) {
	return func() ([]byte, error) {
		s, err := ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read sealed key of journal: %w", err)
		}
		key, err := s.Unseal(device)
		if err != nil {
			return nil, fmt.Errorf("unseal key of journal in %q: %w", path, err)
		}
		return key, nil
	}
}

// Seal seals a key of KeySize bytes with the TPM at device, bound to the current
// values of the PCRs, and unseals it once as a check. pcrs may be empty and need
// not be sorted. It blocks on the TPM, for seconds.
func Seal(device string, key []byte, pcrs []int) (*Sealed, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("seal key with TPM: key has %d bytes, not %d", len(key), KeySize)
	}
	var selected []pcr
	for _, index := range slices.Compact(slices.Sorted(slices.Values(pcrs))) {
		if index < 0 || index > MaxPCR {
			return nil, fmt.Errorf("seal key with TPM: PCR %d is not one of 0 to %d", index, MaxPCR)
		}
		selected = append(selected, pcr{index: index})
	}
	var s *Sealed
	err := withTPM(device, tpmTimeout, func(t transport.TPM) (err error) {
		s, err = seal(t, key, selected)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("seal key with TPM %s: %w", device, err)
	}
	again, err := s.Unseal(device)
	if err != nil {
		return nil, err
	}
	defer clear(again)
	if !bytes.Equal(again, key) {
		return nil, fmt.Errorf("seal key with TPM %s: the unsealed key differs", device)
	}
	return s, nil
}

// Unseal returns the key. It blocks on the TPM, for seconds. The error wraps
// ErrPCRs if PCRs have changed.
func (s *Sealed) Unseal(device string) ([]byte, error) {
	var key []byte
	err := withTPM(device, tpmTimeout, func(t transport.TPM) (err error) {
		key, err = s.unseal(t)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("TPM %s: %w", device, err)
	}
	return key, nil
}

// withTPM opens a TPM, calls do with it, and closes it. It appends remedies to
// errors.
func withTPM(path string, timeout time.Duration, do func(transport.TPM) error) (err error) {
	d, err := openDevice(path, timeout)
	if err != nil {
		return addOpenRemedy(err, sysfs)
	}
	defer func() {
		if p := recover(); p != nil {
			// The library decodes some responses without checking their length.
			// A broken TPM must not crash the agent.
			err = fmt.Errorf("decode TPM response: %v", p)
		}
		if closeErr := d.Close(); err == nil {
			err = closeErr
		}
	}()
	return addRemedy(do(d))
}

// nonceSize is the size of session nonces, the minimum that the TCG allows.
const nonceSize = 16

// storageRootKey is the storage root key while it is loaded.
type storageRootKey struct {
	handle tpm2.TPMHandle
	name   tpm2.TPM2BName
	public tpm2.TPMTPublic
}

// createStorageRootKey creates and loads the storage root key. The caller must flush it.
func createStorageRootKey(t transport.TPM) (*storageRootKey, error) {
	made, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(t)
	if err != nil {
		return nil, &stepError{stepRoot, err}
	}
	public, err := made.OutPublic.Contents()
	if err != nil {
		flush(t, made.ObjectHandle)
		return nil, &stepError{stepRoot, err}
	}
	// Compute the name instead of using the TPM's: it identifies the key that
	// sessions are salted with.
	name, err := tpm2.ObjectName(public)
	if err != nil {
		flush(t, made.ObjectHandle)
		return nil, &stepError{stepRoot, err}
	}
	return &storageRootKey{handle: made.ObjectHandle, name: *name, public: *public}, nil
}

// auth returns an authorization for the storage root key by a session that
// encrypts the command's parameters.
func (r *storageRootKey) auth() tpm2.AuthHandle {
	return tpm2.AuthHandle{Handle: r.handle, Name: r.name, Auth: tpm2.HMAC(tpm2.TPMAlgSHA256, nonceSize,
		tpm2.AESEncryption(128, tpm2.EncryptIn), tpm2.Salted(r.handle, r.public))}
}

func flush(t transport.TPM, handle tpm2.TPMHandle) {
	// After an error the kernel flushes the object when the device is closed.
	_, _ = tpm2.FlushContext{FlushHandle: handle}.Execute(t)
}

func seal(t transport.TPM, key []byte, selected []pcr) (*Sealed, error) {
	r, err := createStorageRootKey(t)
	if err != nil {
		return nil, err
	}
	defer flush(t, r.handle)
	pcrs, err := readPCRs(t, selected)
	if err != nil {
		return nil, err
	}
	made, err := tpm2.Create{
		ParentHandle: r.auth(),
		InSensitive:  tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{Data: tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: key})}},
		InPublic:     tpm2.New2B(keyTemplate(pcrs)),
	}.Execute(t)
	if err != nil {
		return nil, &stepError{stepSeal, err}
	}
	s := &Sealed{parent: r.name.Buffer, public: made.OutPublic.Bytes(), private: made.OutPrivate.Buffer, pcrs: pcrs}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("the TPM created an unexpected object: %w", err)
	}
	return s, nil
}

func (s *Sealed) unseal(t transport.TPM) ([]byte, error) {
	r, err := createStorageRootKey(t)
	if err != nil {
		return nil, err
	}
	defer flush(t, r.handle)
	if !bytes.Equal(r.name.Buffer, s.parent) {
		return nil, errOtherTPM
	}
	object, err := tpm2.Load{
		ParentHandle: tpm2.AuthHandle{Handle: r.handle, Name: r.name, Auth: tpm2.PasswordAuth(nil)},
		InPrivate:    tpm2.TPM2BPrivate{Buffer: s.private},
		InPublic:     tpm2.BytesAs2B[tpm2.TPMTPublic](s.public),
	}.Execute(t)
	if err != nil {
		return nil, &stepError{stepLoad, err}
	}
	defer flush(t, object.ObjectHandle)
	session, done, err := s.startSession(t, r)
	if err != nil {
		return nil, err
	}
	defer done()
	out, err := tpm2.Unseal{ItemHandle: tpm2.AuthHandle{Handle: object.ObjectHandle, Name: object.Name, Auth: session}}.Execute(t)
	if errors.Is(err, tpm2.TPMRCPolicyFail) {
		return nil, s.changedPCRs(t)
	}
	if err != nil {
		return nil, &stepError{stepUnseal, err}
	}
	if len(out.OutData.Buffer) != KeySize {
		clear(out.OutData.Buffer)
		return nil, fmt.Errorf("the sealed data have %d bytes, not %d", len(out.OutData.Buffer), KeySize)
	}
	return out.OutData.Buffer, nil
}

// startSession starts a session that may unseal and that encrypts the response. The
// caller must call the returned function to end it.
func (s *Sealed) startSession(t transport.TPM, r *storageRootKey) (tpm2.Session, func(), error) {
	begin := tpm2.HMACSession
	if len(s.pcrs) > 0 {
		begin = tpm2.PolicySession
	}
	session, end, err := begin(t, tpm2.TPMAlgSHA256, nonceSize, tpm2.AESEncryption(128, tpm2.EncryptOut), tpm2.Salted(r.handle, r.public))
	if err != nil {
		return nil, nil, &stepError{stepSession, err}
	}
	done := func() { _ = end() } // after an error the kernel ends it when the device is closed
	if len(s.pcrs) > 0 {
		if _, err := (tpm2.PolicyPCR{PolicySession: session.Handle(), Pcrs: pcrSelection(s.pcrs)}).Execute(t); err != nil {
			done()
			return nil, nil, &stepError{stepSession, err}
		}
	}
	return session, done, nil
}
