package tpmkey

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

func testKey() []byte {
	key := make([]byte, KeySize)
	for i := range key {
		key[i] = byte(i + 1)
	}
	return key
}

func sealed(t *testing.T, e *emulator, pcrs ...int) *Sealed {
	t.Helper()
	s, err := Seal(e.socket, testKey(), pcrs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unsealFile reads and unseals a key as the agent does.
func unsealFile(t *testing.T, e *emulator, text []byte) ([]byte, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.tpm")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return Source(path, e.socket)()
}

func TestSealAndUnseal(t *testing.T) {
	for name, pcrs := range map[string][]int{"without PCRs": nil, "one PCR": {7}, "PCRs in any order": {11, 0, 7, 7}, "all PCRs": all()} {
		t.Run(name, func(t *testing.T) {
			e := newEmulator(t)
			text := sealed(t, e, pcrs...).Encode()
			if bytes.Contains(text, testKey()) || strings.Contains(string(text), "0102030405") {
				t.Error("the file has the key")
			}
			for range 2 {
				if got, err := unsealFile(t, e, text); err != nil || !bytes.Equal(got, testKey()) {
					t.Fatalf("key %x, error %v", got, err)
				}
			}
			if n := e.loaded(); n > 0 {
				t.Errorf("%d objects and sessions are left in the TPM", n)
			}
			e.stop()
			e.start()
			if got, err := unsealFile(t, e, text); err != nil || !bytes.Equal(got, testKey()) {
				t.Errorf("after a power cut: key %x, error %v", got, err)
			}
		})
	}
}

func all() (out []int) {
	for i := range MaxPCR + 1 {
		out = append(out, i)
	}
	return out
}

func TestAnotherTPMRefuses(t *testing.T) {
	text := sealed(t, newEmulator(t)).Encode()
	other := newEmulator(t)
	if got, err := unsealFile(t, other, text); !errors.Is(err, errOtherTPM) {
		t.Errorf("key %x, error %v", got, err)
	}
	// Who writes the other's name into the file gains nothing.
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s.parent = sealed(t, other).parent
	if got, err := unsealFile(t, other, s.Encode()); !errors.Is(err, tpm2.TPMRCIntegrity) || !strings.Contains(err.Error(), "restore the file") {
		t.Errorf("with the name of its root: key %x, error %v", got, err)
	}
}

func TestClearedTPMRefuses(t *testing.T) {
	e := newEmulator(t)
	text := sealed(t, e).Encode()
	e.do(func(t transport.TPM) error {
		_, err := tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHPlatform, Auth: tpm2.PasswordAuth(nil)}}.Execute(t)
		return err
	})
	if got, err := unsealFile(t, e, text); !errors.Is(err, errOtherTPM) {
		t.Errorf("key %x, error %v", got, err)
	}
}

func TestChangedPCRRefuses(t *testing.T) {
	e := newEmulator(t)
	bound, free := sealed(t, e, 4, 7, 11), sealed(t, e)
	e.extend(11)
	if got, err := unsealFile(t, e, bound.Encode()); !errors.Is(err, ErrPCRs) || !strings.HasSuffix(err.Error(), ": PCR 11") {
		t.Errorf("key %x, error %v", got, err)
	}
	if got, err := unsealFile(t, e, free.Encode()); err != nil || !bytes.Equal(got, testKey()) {
		t.Errorf("a key without PCRs: %x, error %v", got, err)
	}
	// Values that fit what was booted do not make a policy that fits the object.
	s := *bound
	e.do(func(t transport.TPM) (err error) {
		s.pcrs, err = readPCRs(t, []pcr{{index: 4}, {index: 7}, {index: 11}})
		return err
	})
	if got, err := unsealFile(t, e, s.Encode()); err == nil || !strings.Contains(err.Error(), "public part") {
		t.Errorf("with other values in the file: key %x, error %v", got, err)
	}
	want := keyTemplate(s.pcrs)
	want.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgKeyedHash, &tpm2.TPM2BDigest{Buffer: s.public[len(s.public)-32:]})
	s.public = tpm2.Marshal(want)
	if got, err := unsealFile(t, e, s.Encode()); !errors.Is(err, tpm2.TPMRCIntegrity) {
		t.Errorf("with another policy in the file: key %x, error %v", got, err)
	}
	if n := e.loaded(); n > 0 {
		t.Errorf("%d objects and sessions are left in the TPM", n)
	}
	// What was booted before helps again.
	e.stop()
	e.start()
	if got, err := unsealFile(t, e, bound.Encode()); err != nil || !bytes.Equal(got, testKey()) {
		t.Errorf("after another boot: key %x, error %v", got, err)
	}
}

// The policy of the object is the only way to a key with PCRs.
func TestPCRsCannotBePassedBy(t *testing.T) {
	e := newEmulator(t)
	s := sealed(t, e, 7)
	e.do(func(c transport.TPM) error {
		r, err := createStorageRootKey(c)
		if err != nil {
			return err
		}
		defer flush(c, r.handle)
		object, err := tpm2.Load{
			ParentHandle: tpm2.AuthHandle{Handle: r.handle, Name: r.name, Auth: tpm2.PasswordAuth(nil)},
			InPrivate:    tpm2.TPM2BPrivate{Buffer: s.private}, InPublic: tpm2.BytesAs2B[tpm2.TPMTPublic](s.public),
		}.Execute(c)
		if err != nil {
			return err
		}
		defer flush(c, object.ObjectHandle)
		_, err = tpm2.Unseal{ItemHandle: tpm2.AuthHandle{Handle: object.ObjectHandle, Name: object.Name, Auth: tpm2.PasswordAuth(nil)}}.Execute(c)
		if !errors.Is(err, tpm2.TPMRCAuthUnavailable) {
			t.Errorf("the empty password: %v", err)
		}
		return nil
	})
}

// bus records the bytes on the bus.
type bus struct {
	transport.TPM
	seen bytes.Buffer
}

func (b *bus) Send(command []byte) ([]byte, error) {
	b.seen.Write(command)
	response, err := b.TPM.Send(command)
	b.seen.Write(response)
	return response, err
}

func TestBusDoesNotCarryTheKey(t *testing.T) {
	for name, pcrs := range map[string][]pcr{"without PCRs": nil, "with PCRs": {{index: 7}}} {
		t.Run(name, func(t *testing.T) {
			newEmulator(t).do(func(c transport.TPM) error {
				b := &bus{TPM: c}
				s, err := seal(b, testKey(), pcrs)
				if err != nil {
					return err
				}
				key, err := s.unseal(b)
				if err != nil {
					return err
				}
				if !bytes.Equal(key, testKey()) {
					t.Errorf("key %x", key)
				}
				if !bytes.Contains(b.seen.Bytes(), s.private) {
					t.Error("nothing was seen on the bus")
				}
				if bytes.Contains(b.seen.Bytes(), testKey()) {
					t.Error("the key was seen on the bus")
				}
				return nil
			})
		})
	}
}

// Salts are points of a curve. Their coordinates may begin with zeros.
func TestManySessions(t *testing.T) {
	e := newEmulator(t)
	for range 40 {
		if key, err := sealed(t, e).Unseal(e.socket); err != nil || !bytes.Equal(key, testKey()) {
			t.Fatalf("key %x, error %v", key, err)
		}
	}
}

func TestOwnerWithPassword(t *testing.T) {
	e := newEmulator(t)
	e.do(func(c transport.TPM) error {
		_, err := tpm2.HierarchyChangeAuth{
			AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)}, NewAuth: tpm2.TPM2BAuth{Buffer: []byte("secret")},
		}.Execute(c)
		return err
	})
	if _, err := Seal(e.socket, testKey(), nil); err == nil || !strings.Contains(err.Error(), "tpm2_changeauth") {
		t.Errorf("error %v", err)
	}
}

func TestTPM12(t *testing.T) {
	e := newEmulator(t, []string{}...)
	if _, err := Seal(e.socket, testKey(), nil); err == nil || !strings.Contains(err.Error(), "TPM 1.2, but a TPM 2.0 is required") {
		t.Errorf("error %v", err)
	}
}

func TestNoTPM(t *testing.T) {
	dir := t.TempDir()
	_, err := Seal(filepath.Join(dir, "tpmrm0"), testKey(), nil)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "tpm_tis_spi") {
		t.Errorf("error %v", err)
	}
	for major, want := range map[string]string{"1": "has a TPM 1.2", "2": "has found no TPM 2.0"} {
		if err := os.MkdirAll(filepath.Join(dir, "tpm0"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tpm0", "tpm_version_major"), []byte(major+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := addOpenRemedy(os.ErrNotExist, dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), want) {
			t.Errorf("version %s: error %v", major, err)
		}
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Seal(plain, testKey(), nil); err == nil || !strings.Contains(err.Error(), "not a TPM device") {
		t.Errorf("a plain file: error %v", err)
	}
	if err := addOpenRemedy(os.ErrPermission, dir); !strings.Contains(err.Error(), "as root") {
		t.Errorf("error %v", err)
	}
}

func TestBadArguments(t *testing.T) {
	for name, f := range map[string]func() error{
		"short key":   func() error { _, err := Seal("/nowhere", testKey()[1:], nil); return err },
		"PCR 24":      func() error { _, err := Seal("/nowhere", testKey(), []int{24}); return err },
		"negative":    func() error { _, err := Seal("/nowhere", testKey(), []int{-1}); return err },
		"no file":     func() error { _, err := Source("/nowhere", "/nowhere")(); return err },
		"not a file":  func() error { _, err := Source("/dev/null", "/nowhere")(); return err },
		"empty file":  func() error { _, err := unsealFile(t, &emulator{socket: "/nowhere"}, nil); return err },
		"a huge file": func() error { _, err := unsealFile(t, &emulator{socket: "/nowhere"}, make([]byte, 1<<20)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			// The TPM is not even asked.
			if err := f(); err == nil || strings.Contains(err.Error(), "TPM /nowhere") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// answering is a TPM's socket that sends one response to each command.
func answering(t *testing.T, answer []byte) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tpm")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// The device leaves the connection open where nothing answers.
			stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
			buf := make([]byte, maxResponse)
			for {
				if _, err := conn.Read(buf); err != nil {
					break
				}
				if _, err := conn.Write(answer); err != nil {
					break
				}
			}
			stop()
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return path
}

func TestSilentTPM(t *testing.T) {
	path := answering(t, nil)
	began := time.Now()
	err := withTPM(path, 100*time.Millisecond, func(c transport.TPM) error {
		_, err := createStorageRootKey(c)
		if !errors.Is(err, errTimeout) {
			t.Errorf("the first command: %v", err)
		}
		_, err = createStorageRootKey(c)
		return err
	})
	if !errors.Is(err, errTimeout) || time.Since(began) > 5*time.Second {
		t.Errorf("error %v after %v", err, time.Since(began))
	}
}

func TestAnswersWithoutSense(t *testing.T) {
	for name, answer := range map[string][]byte{
		"length 0":     {0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0},
		"length 4 GB":  {0x80, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"too much":     append([]byte{0x80, 1, 0, 0, 0, 10, 0, 0, 0, 0}, 1, 2, 3),
		"only success": {0x80, 2, 0, 0, 0, 10, 0, 0, 0, 0},
		"zeros":        append([]byte{0x80, 2, 0, 0, 0, 100, 0, 0, 0, 0}, make([]byte, 90)...),
		"ones":         append([]byte{0x80, 2, 0, 0, 0, 100, 0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 90)...),
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := Seal(answering(t, answer), testKey(), nil); err == nil {
				t.Errorf("sealed %+v", s)
			}
		})
	}
}

func TestPanicsAreErrors(t *testing.T) {
	err := withTPM(answering(t, nil), tpmTimeout, func(transport.TPM) error { panic("index out of range") })
	if err == nil || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("error %v", err)
	}
}

func TestExplain(t *testing.T) {
	// As a parameter's, a handle's and a session's errors are coded.
	parameter := func(rc tpm2.TPMRC) tpm2.TPMRC { return rc | 0x40 | 0x100 }
	session := func(rc tpm2.TPMRC) tpm2.TPMRC { return rc | 0x800 | 0x100 }
	for _, row := range []struct {
		step string
		code tpm2.TPMRC
		want string // "" is nothing
	}{
		{stepRoot, 0x0a, "TPM 1.2"},
		{stepRoot, 0x1e, "TPM 1.2"},
		{stepRoot, session(tpm2.TPMRCBadAuth), "tpm2_changeauth"},
		{stepUndefine, session(tpm2.TPMRCBadAuth), "tpm2_changeauth"},
		{stepUnseal, session(tpm2.TPMRCBadAuth), ""},
		{stepRoot, tpm2.TPMRCLockout, "clear-lockout"},
		{stepUnseal, tpm2.TPMRCLockout, "clear-lockout"},
		{stepRoot, tpm2.TPMRCInitialize, "tpm2_startup"},
		{stepRoot, tpm2.TPMRCFailure, "self-test"},
		{stepRoot, tpm2.TPMRCHierarchy | 0x100, "is disabled"},
		{stepRoot, parameter(tpm2.TPMRCCurve), "P-256"},
		{stepLoad, parameter(tpm2.TPMRCIntegrity), "restore the file"},
		{stepLoad, parameter(tpm2.TPMRCSize), "restore the file"},
		{stepLoad, tpm2.TPMRCObjectMemory, ""},
	} {
		err := addRemedy(&stepError{row.step, row.code})
		if !strings.HasPrefix(err.Error(), row.step+": ") {
			t.Errorf("%s of %q: %v", row.code, row.step, err)
		}
		if row.want == "" && err.Error() != row.step+": "+row.code.Error() || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s of %q: %v, want %q", row.code, row.step, err, row.want)
		}
	}
}
