package offline

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/secretfile"
)

func sealKey(of byte) []byte {
	key := make([]byte, keySize)
	for i := range key {
		key[i] = of + byte(i)
	}
	return key
}

func keyOf(of byte) func() ([]byte, error) {
	return func() ([]byte, error) { return sealKey(of), nil }
}

func TestConfigs(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]Config{
		"no folder":   {Log: log},
		"no log":      {Dir: t.TempDir()},
		"no key file": {Dir: t.TempDir(), Log: log, Key: KeyFile(filepath.Join(t.TempDir(), "none"))},
		"short key":   {Dir: t.TempDir(), Log: log, Key: func() ([]byte, error) { return sealKey(1)[:5], nil }},
	} {
		if s, err := Open(c); err == nil {
			t.Errorf("%s: no error", name)
			_ = s.Close()
		}
	}
	c := Config{Dir: filepath.Join(t.TempDir(), "a", "b"), Log: log}
	s := mustOpen(t, c)
	if _, err := Open(c); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	mustAdmit(t, s, aPod("a"))
	for path, want := range map[string]os.FileMode{c.Dir: 0o700, filepath.Join(c.Dir, "journal"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s: %v, %v", path, info.Mode(), err)
		}
	}
}

// TestSealing also checks that a plain journal's content survives a migration.
func TestSealing(t *testing.T) {
	c := Config{Dir: t.TempDir()}
	mustAdmit(t, mustOpen(t, c), aPod("secret-name"))
	api := newServer()
	api.set("ns", "secret", "1", "very-secret")
	s := mustOpen(t, Config{Dir: t.TempDir()})
	mustAdmit(t, s, aPod("secret-name"))
	if _, err := s.Reader(api).Secret(t.Context(), "ns", "secret"); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content(t, s.config.Dir), []byte("very-secret")) {
		t.Error("the test does not see what is not sealed")
	}
	s.config.Key = keyOf(1)
	must(t, s.Close())
	if m, err := Migrate(s.config); err != nil || m.From != s.config.Dir {
		t.Fatalf("migrated %+v, %v", m, err)
	}
	s = mustOpen(t, s.config)
	if got := s.Secrets(); len(got) != 1 || got[0] != "ns/secret" {
		t.Errorf("Secrets %q", got)
	}
	for _, word := range []string{"very-secret", "secret-name"} {
		if bytes.Contains(content(t, s.config.Dir), []byte(word)) {
			t.Errorf("%q stands in the sealed journal", word)
		}
	}
	api.state(false, errLink)
	if m, err := s.Reader(api).Secret(t.Context(), "ns", "secret"); err != nil || string(m.Data["k"]) != "very-secret" {
		t.Errorf("%v, %v", m, err)
	}
}

// TestUnreadable checks that a journal which cannot be read is an error and is not changed.
func TestUnreadable(t *testing.T) {
	later := func(t *testing.T, c Config) {
		data := content(t, c.Dir)
		data[8] = 9
		// The checksum of the header is over its first 56 bytes.
		sum := crc(data[:56])
		copy(data[56:60], sum)
		must(t, os.WriteFile(filepath.Join(c.Dir, "journal"), data, 0o600))
	}
	for _, row := range []struct {
		name   string
		spoil  func(t *testing.T, c Config)
		key    func() ([]byte, error)
		want   error
		saying string
	}{
		{"another key", nil, keyOf(2), journal.ErrKey, "restore the key"},
		{"no key", nil, nil, journal.ErrKey, "configure the key"},
		{"later version", later, keyOf(1), journal.ErrVersion, "run the version"},
		{"a key that is missing", nil, func() ([]byte, error) { return nil, os.ErrNotExist }, os.ErrNotExist, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			log := &lines{}
			c := Config{Dir: filepath.Join(t.TempDir(), "journal"), Log: log.logger(), Key: keyOf(1)}
			s := mustOpen(t, c)
			mustAdmit(t, s, aPod("a"))
			must(t, s.Close())
			if row.spoil != nil {
				row.spoil(t, c)
			}
			before := content(t, c.Dir)
			c.Key = row.key
			if _, err := Open(c); !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.saying) || log.text.Len() > 0 {
				t.Fatalf("error %v, log %s", err, log.text.String())
			}
			if !bytes.Equal(before, content(t, c.Dir)) || len(Quarantined(c.Dir)) > 0 {
				t.Error("the journal was changed")
			}
		})
	}
}

func TestQuarantineIsBounded(t *testing.T) {
	c := Config{Dir: filepath.Join(t.TempDir(), "journal"), Log: slog.New(slog.DiscardHandler)}
	sealed := c
	sealed.Key = keyOf(1)
	plain := func() {
		must(t, os.RemoveAll(c.Dir))
		s := mustOpen(t, c)
		mustAdmit(t, s, aPod("a"))
		must(t, s.Close())
	}
	for range maxQuarantined {
		plain()
		must(t, mustOpen(t, sealed).Close())
	}
	plain()
	before := content(t, c.Dir)
	if _, err := Open(sealed); !errors.Is(err, journal.ErrPlain) || !strings.Contains(err.Error(), "remove those") {
		t.Errorf("error %v", err)
	}
	if !bytes.Equal(before, content(t, c.Dir)) {
		t.Error("the journal was changed")
	}
}

func TestKeyFiles(t *testing.T) {
	key := sealKey(250)
	text := hex.EncodeToString(key)
	for _, row := range []struct {
		name, text string
		good       bool
	}{
		{"raw", string(key), true},
		{"hexadecimal", text, true},
		{"hexadecimal in a line", " " + strings.ToUpper(text) + "\r\n", true},
		{"base64", base64.StdEncoding.EncodeToString(key) + "\n", true},
		{"base64 without padding", base64.RawStdEncoding.EncodeToString(key), true},
		{"base64 of URLs", base64.URLEncoding.EncodeToString(key), true},
		{"base64 of URLs without padding", base64.RawURLEncoding.EncodeToString(key), true},
		{"empty", "", false},
		{"a line", "\n", false},
		{"raw in a line", string(key) + "\n", false},
		{"short", string(key[:31]), false},
		{"short hexadecimal", text[:62], false},
		{"odd hexadecimal", text[:63], false},
		{"long hexadecimal", text + "00", false},
		{"short base64", base64.StdEncoding.EncodeToString(key[:31]), false},
		{"long base64", base64.StdEncoding.EncodeToString(append(key, 0)), false},
		{"words", "correct horse battery staple, and so on", false},
		{"zeroes", string(make([]byte, 32)), false},
		{"erased flash", strings.Repeat("ff", 32), false},
		{"large", strings.Repeat("a", 1<<20), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			must(t, os.WriteFile(path, []byte(row.text), 0o600))
			got, err := KeyFile(path)()
			if (err == nil) != row.good || row.good && !bytes.Equal(got, key) {
				t.Errorf("%x, %v", got, err)
			}
			if err != nil && (len(row.text) > 1 && strings.Contains(err.Error(), row.text) || !strings.Contains(err.Error(), path)) {
				t.Errorf("error %v", err)
			}
		})
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	for _, path := range []string{fifo, t.TempDir(), "/dev/zero"} {
		if _, err := KeyFile(path)(); err == nil {
			t.Errorf("%s is a key", path)
		}
	}
	open := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(open, key, 0o600))
	must(t, os.Chmod(open, 0o644))
	if got, err := KeyFile(open)(); !errors.Is(err, secretfile.ErrExposed) || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that all can read: key %x, error %v", got, err)
	}
}

func TestKeyrings(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const description = "tinylet:journal-test"
	if _, err := Keyring(description)(); !errors.Is(err, unix.ENOKEY) {
		t.Skipf("there are no keyrings here: %v", err)
	}
	for _, row := range []struct {
		text string
		good bool
	}{{string(sealKey(1)), true}, {hex.EncodeToString(sealKey(1)) + "\n", true}, {"short", false}, {strings.Repeat("a", 5000), false}} {
		id, err := unix.AddKey("user", description, []byte(row.text), unix.KEY_SPEC_USER_KEYRING)
		if err != nil {
			t.Skipf("no key can be added: %v", err)
		}
		key, err := Keyring(description)()
		if _, err := unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0); err != nil {
			t.Error(err)
		}
		if (err == nil) != row.good || row.good && !bytes.Equal(key, sealKey(1)) {
			t.Errorf("%x, %v", key, err)
		}
	}
}
