package offline

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// KeyDescription is the description of the key of type "user" that boards
// keep for the journal in a kernel keyring.
const KeyDescription = "tinylet:journal"

const (
	// keySize is that of a key in bytes.
	keySize = 32
	// maxKeyText is the most that is read of a key, in bytes.
	maxKeyText = 1024
)

// KeyFile answers a source of a key for Config.Key: a file of 32 bytes, or of
// one line that has them in hexadecimal or in base64. A file that other users
// may use is refused. The source blocks on the disk.
func KeyFile(path string) func() ([]byte, error) {
	return func() ([]byte, error) {
		text, err := secretfile.Read(path, maxKeyText)
		if err != nil {
			return nil, fmt.Errorf("read the key of the journal: %w", err)
		}
		defer clear(text)
		key, err := parseSealKey(text)
		if err != nil {
			return nil, fmt.Errorf("read the key of the journal from %q: %w", path, err)
		}
		return key, nil
	}
}

// Keyring answers a source of a key for Config.Key: the key of type "user"
// with a description, such as KeyDescription, in the session's, the user
// session's or the user's kernel keyring (keyrings(7)). Its payload is what a
// file of KeyFile has. Whatever has a key at boot can put it there.
func Keyring(description string) func() ([]byte, error) {
	return func() ([]byte, error) {
		text, err := readKeyring(description)
		if err != nil {
			return nil, fmt.Errorf("read the key %q from the kernel's keyrings: %w", description, err)
		}
		defer clear(text)
		key, err := parseSealKey(text)
		if err != nil {
			return nil, fmt.Errorf("read the key %q from the kernel's keyrings: %w", description, err)
		}
		return key, nil
	}
}

func readKeyring(description string) ([]byte, error) {
	// A thread's keyring is what makes a key that was found one that the
	// thread possesses, and so may read.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var errs []error
	for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING} {
		id, err := unix.KeyctlSearch(ring, "user", description, unix.KEY_SPEC_THREAD_KEYRING)
		if err != nil {
			errs = append(errs, os.NewSyscallError("keyctl", err))
			continue
		}
		text := make([]byte, maxKeyText+1)
		n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, text, 0)
		_, unlink := unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_THREAD_KEYRING, 0, 0)
		if err = errors.Join(err, unlink); err != nil {
			clear(text)
			return nil, os.NewSyscallError("keyctl", err)
		}
		return text[:min(n, len(text))], nil
	}
	return nil, errs[0]
}

// parseSealKey reads a key as it is, in hexadecimal or in base64.
func parseSealKey(text []byte) ([]byte, error) {
	key := bytes.Clone(text)
	if len(text) != keySize {
		line := bytes.TrimSpace(text)
		key = make([]byte, len(line))
		n, err := hex.Decode(key, line)
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			if err == nil && n == keySize {
				break
			}
			n, err = encoding.Decode(key, line)
		}
		if err != nil || n != keySize {
			clear(key)
			return nil, fmt.Errorf("%d bytes are no key: it has to be %d bytes, or those in hexadecimal or base64 (head -c32 /dev/urandom makes one)", len(text), keySize)
		}
		key = key[:keySize]
	}
	if bytes.Count(key, key[:1]) == keySize {
		return nil, fmt.Errorf("%d equal bytes are no key, but what storage has that nobody wrote to", keySize)
	}
	return key, nil
}
