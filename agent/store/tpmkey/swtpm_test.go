package tpmkey

import (
	"bytes"
	"crypto/sha256"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// emulator is a swtpm process. Its state outlives the process.
type emulator struct {
	t      *testing.T
	dir    string
	args   []string
	cmd    *exec.Cmd
	socket string
}

// newEmulator starts a TPM 2.0 with its own seeds.
func newEmulator(t *testing.T, args ...string) *emulator {
	t.Helper()
	if _, err := exec.LookPath("swtpm"); err != nil {
		t.Skip("no TPM is emulated here: apt-get install swtpm")
	}
	// A socket's path is short.
	dir, err := os.MkdirTemp("", "tpm")
	if err != nil {
		t.Fatal(err)
	}
	e := &emulator{t: t, dir: dir, args: args, socket: filepath.Join(dir, "socket")}
	if args == nil {
		e.args = []string{"--tpm2"}
	}
	t.Cleanup(func() {
		e.stop()
		_ = os.RemoveAll(dir)
	})
	e.start()
	return e
}

func (e *emulator) start() {
	e.t.Helper()
	args := append([]string{"socket", "--tpmstate", "dir=" + e.dir, "--server", "type=unixio,path=" + e.socket, "--flags", "not-need-init,startup-clear"}, e.args...)
	e.cmd = exec.Command("swtpm", args...)
	var said bytes.Buffer
	e.cmd.Stdout, e.cmd.Stderr = &said, &said
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", e.socket)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			e.stop()
			e.t.Fatalf("swtpm does not answer: %v: %s", err, said.String())
		}
	}
}

// stop kills the TPM, as a power cut.
func (e *emulator) stop() {
	if e.cmd != nil {
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait() // it was killed
		_ = os.Remove(e.socket)
		e.cmd = nil
	}
}

// do sends commands to the TPM as another program on the board does.
func (e *emulator) do(do func(transport.TPM) error) {
	e.t.Helper()
	if err := withTPM(e.socket, tpmTimeout, do); err != nil {
		e.t.Fatal(err)
	}
}

// extend extends a PCR.
func (e *emulator) extend(index int) {
	e.t.Helper()
	e.do(func(t transport.TPM) error {
		sum := sha256.Sum256([]byte("another kernel"))
		_, err := tpm2.PCRExtend{
			PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(index), Auth: tpm2.PasswordAuth(nil)},
			Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: sum[:]}}},
		}.Execute(t)
		return err
	})
}

// loaded returns how many objects and sessions the TPM holds.
func (e *emulator) loaded() (n int) {
	e.t.Helper()
	e.do(func(t transport.TPM) error {
		for _, first := range []uint32{0x80000000, 0x02000000, 0x03000000} {
			have, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: first, PropertyCount: 16}.Execute(t)
			if err != nil {
				return err
			}
			handles, err := have.CapabilityData.Data.Handles()
			if err != nil {
				return err
			}
			n += len(handles.Handle)
		}
		return nil
	})
	return n
}
