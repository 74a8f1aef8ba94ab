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

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/secretfile"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// KeyDescription is the description of the key of type "user" with which nodes
// keep the journal's key in a kernel keyring.
const KeyDescription = "tinylet:journal"

const (
	// keySize is the size of a key in bytes.
	keySize = 32
	// maxKeyText bounds the bytes that are read of a key.
	maxKeyText = 1024
)

// KeyFile returns a key source for Config.Key: a file of 32 bytes, or of one
// line with them in hexadecimal or base64. A file that other users may use is
// rejected. The source blocks on the disk.
func KeyFile(path string) func() ([]byte, error) {
	return func() ([]byte, error) {
		text, err := secretfile.Read(path, maxKeyText)
		if err != nil {
			return nil, fmt.Errorf("read journal key: %w", err)
		}
		defer clear(text)
		key, err := parseSealKey(text)
		if err != nil {
			return nil, fmt.Errorf("read journal key from %q: %w", path, err)
		}
		return key, nil
	}
}

// Keyring returns a key source for Config.Key: the key of type "user" with a
// description, such as KeyDescription, in the kernel keyring of the session,
// the user session or the user (keyrings(7)). Its payload has the format of a
// KeyFile. Any program that has a key at boot can put it there.
func Keyring(description string) func() ([]byte, error) {
	return func() ([]byte, error) {
		text, err := readKeyring(description)
		if err != nil {
			return nil, fmt.Errorf("read key %q from kernel keyrings: %w", description, err)
		}
		defer clear(text)
		key, err := parseSealKey(text)
		if err != nil {
			return nil, fmt.Errorf("read key %q from kernel keyrings: %w", description, err)
		}
		return key, nil
	}
}

func readKeyring(description string) ([]byte, error) {
	// Linking the key to the thread keyring makes the thread its possessor,
	// which may read it.
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

// parseSealKey parses a key in raw form, hexadecimal or base64.
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
			return nil, fmt.Errorf("%d bytes are not a key: need %d bytes, raw or in hexadecimal or base64 (head -c32 /dev/urandom makes one)", len(text), keySize)
		}
		key = key[:keySize]
	}
	if bytes.Count(key, key[:1]) == keySize {
		return nil, fmt.Errorf("%d equal bytes are not a key: blank storage reads like this", keySize)
	}
	return key, nil
}

// Sources returns the configured source of the journal's key and the matching
// anchor; nil means none. device is the TPM device. A key in a kernel keyring
// has no anchor, since a keyring does not survive a reboot.
func Sources(tc *config.TinyletConfiguration, device string) (key func() ([]byte, error), anchor journal.Anchor) {
	switch {
	case tc.JournalKeyTPMFile != "":
		return tpmkey.Source(tc.JournalKeyTPMFile, device), tpmkey.NewCounter(tc.JournalKeyTPMFile, device)
	case tc.JournalKeyFile != "":
		return KeyFile(tc.JournalKeyFile), NewFileAnchor(tc.JournalKeyFile + AnchorSuffix)
	case tc.JournalKeyring != "":
		return Keyring(tc.JournalKeyring), nil
	}
	return nil, nil
}
