package offline

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// sealing is a node whose journal has a key and an anchor.
type sealing struct {
	t      *testing.T
	config Config
	path   string // of the journal's file
	gone   func() // makes the anchor go
}

func sealedByFile(t *testing.T) *sealing {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "journal.key")
	must(t, os.WriteFile(file, sealKey(1), 0o600))
	must(t, NewFileAnchor(file+AnchorSuffix).Make())
	return sealingBy(t, &config.TinyletConfiguration{JournalKeyFile: file}, "", func() { must(t, os.Remove(file+AnchorSuffix)) })
}

// sealedByTPM has a key that an emulated TPM has sealed.
func sealedByTPM(t *testing.T) *sealing {
	t.Helper()
	if _, err := exec.LookPath("swtpm"); err != nil {
		t.Skip("no TPM is emulated here: apt-get install swtpm")
	}
	dir, err := os.MkdirTemp("", "tpm") // a socket's path is short
	must(t, err)
	socket := filepath.Join(dir, "socket")
	state := 0
	var swtpm *exec.Cmd
	stop := func() {
		if swtpm != nil {
			_ = swtpm.Process.Kill()
			_ = swtpm.Wait() // it was killed
		}
	}
	start := func() {
		t.Helper()
		stop()
		state++
		swtpm = exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir, "--server", "type=unixio,path="+socket, "--flags", "not-need-init,startup-clear")
		must(t, swtpm.Start())
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			conn, err := net.Dial("unix", socket)
			if err == nil {
				_ = conn.Close()
				return
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() {
		stop()
		_ = os.RemoveAll(dir)
	})
	start()
	key, err := tpmkey.Seal(socket, sealKey(1), nil)
	must(t, err)
	file := filepath.Join(dir, "journal.tpm")
	must(t, os.WriteFile(file, key.Encode(), 0o600))
	return sealingBy(t, &config.TinyletConfiguration{JournalKeyTPMFile: file}, socket, func() {
		// Another TPM: a copy of the key is sealed anew by it.
		stop()
		swtpm = nil
		must(t, os.RemoveAll(filepath.Join(dir, "tpm2-00.permall")))
		_ = os.Remove(socket)
		start()
		key, err := tpmkey.Seal(socket, sealKey(1), nil)
		must(t, err)
		must(t, os.WriteFile(file, key.Encode(), 0o600))
	})
}

func sealingBy(t *testing.T, tc *config.TinyletConfiguration, device string, gone func()) *sealing {
	t.Helper()
	s := &sealing{t: t, gone: gone}
	s.config = Config{Dir: filepath.Join(t.TempDir(), "journal"), Log: slog.New(slog.DiscardHandler)}
	s.config.Key, s.config.Anchor = Sources(tc, device)
	s.path = filepath.Join(s.config.Dir, journalFile)
	return s
}

// run opens the journal, admits pods, and answers the file and what the journal
// had of pods.
func (s *sealing) run(c Config, admit ...string) (file []byte, had string, refused error) {
	s.t.Helper()
	store, err := Open(c)
	must(s.t, err)
	had = uidsOf(store.Pods())
	for _, uid := range admit {
		mustAdmit(s.t, store, aPod(uid))
	}
	refused = store.QuarantineReason()
	must(s.t, store.Close())
	return content(s.t, c.Dir), had, refused
}

// TestRefusedJournal puts something else in the journal's place: it is
// quarantined, none of its pods run, a new journal is started, and a migration
// accepts it nevertheless.
func TestRefusedJournal(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) *sealing{"key file": sealedByFile, "TPM": sealedByTPM} {
		for _, row := range []struct {
			name string
			do   func(t *testing.T, s *sealing)
			want error  // nil is none
			had  string // by the refused journal
		}{
			{"nothing", func(*testing.T, *sealing) {}, nil, "a b"},
			{"a plain file", func(t *testing.T, s *sealing) {
				plain := Config{Dir: filepath.Join(t.TempDir(), "plain"), Log: s.config.Log}
				data, _, _ := s.run(plain, "forged")
				must(t, os.WriteFile(s.path, data, 0o600))
			}, journal.ErrPlain, "forged"},
			{"an older copy", func(t *testing.T, s *sealing) {
				older := content(t, s.config.Dir)
				s.run(s.config, "c")
				s.run(s.config, "d")
				must(t, os.WriteFile(s.path, older, 0o600))
			}, journal.ErrStale, "a b"},
			{"a copy of the former release", func(t *testing.T, s *sealing) {
				former := Config{Dir: filepath.Join(t.TempDir(), "former"), Log: s.config.Log, Key: keyOf(1)}
				data, _, _ := s.run(former, "former")
				must(t, os.WriteFile(s.path, data, 0o600))
			}, journal.ErrStale, "former"},
			{"an anchor that is gone", func(_ *testing.T, s *sealing) { s.gone() }, journal.ErrStale, "a b"},
		} {
			t.Run(name+", "+row.name, func(t *testing.T) {
				s := begin(t)
				s.run(s.config, "a")
				s.run(s.config, "b")
				row.do(t, s)
				before := content(t, s.config.Dir)
				_, had, refused := s.run(s.config)
				if row.want == nil {
					if refused != nil || had != row.had {
						t.Errorf("pods %q, refused: %v", had, refused)
					}
					return
				}
				if !errors.Is(refused, row.want) || had != "" || !strings.Contains(refused.Error(), "journal-key --migrate") {
					t.Fatalf("pods %q, refused: %v", had, refused)
				}
				aside := s.config.Dir + ".aside-1"
				if got := Quarantined(s.config.Dir); len(got) != 1 || got[0] != aside || !bytes.Equal(content(t, aside), before) {
					t.Errorf("put aside %q", got)
				}
				if _, had, refused := s.run(s.config); had != "" || refused != nil {
					t.Errorf("the new journal: pods %q, refused: %v", had, refused)
				}
				m, err := Migrate(s.config)
				if err != nil || m.From != aside || m.Quarantined == "" {
					t.Fatalf("migrated %+v, %v", m, err)
				}
				for range 2 {
					if _, had, refused = s.run(s.config); had != row.had || refused != nil {
						t.Errorf("after the migration: pods %q, refused: %v", had, refused)
					}
				}
				if m, err := Migrate(s.config); err != nil || m.From != "" {
					t.Errorf("a second migration: %+v, %v", m, err)
				}
				if removed, err := Remove(s.config.Dir); err != nil || !removed || len(Quarantined(s.config.Dir)) > 0 {
					t.Errorf("removed %v, %v", removed, err)
				}
				if _, err := os.Lstat(s.config.Dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the folder: %v", err)
				}
			})
		}
	}
}

// TestMigrateInPlace migrates before an agent has opened the journal.
func TestMigrateInPlace(t *testing.T) {
	s := sealedByFile(t)
	plain := s.config
	plain.Key = nil
	s.run(plain, "a")
	open := mustOpen(t, plain)
	if _, err := Migrate(s.config); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("with an agent: %v", err)
	}
	if _, err := Remove(s.config.Dir); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("removed with an agent: %v", err)
	}
	must(t, open.Close())
	if _, err := Migrate(plain); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Errorf("without a key: %v", err)
	}
	other := s.config
	other.Key = func() ([]byte, error) { return nil, os.ErrNotExist }
	if _, err := Migrate(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key that is missing: %v", err)
	}
	if m, err := Migrate(s.config); err != nil || m.From != s.config.Dir || m.Quarantined != "" {
		t.Errorf("migrated %+v, %v", m, err)
	}
	if _, had, refused := s.run(s.config); had != "a" || refused != nil {
		t.Errorf("pods %q, refused: %v", had, refused)
	}
	none := s.config
	none.Dir = filepath.Join(t.TempDir(), "none")
	if m, err := Migrate(none); err != nil || m.From != "" {
		t.Errorf("nothing: %+v, %v", m, err)
	}
	if removed, err := Remove(none.Dir); err != nil || removed {
		t.Errorf("removed nothing: %v, %v", removed, err)
	}
}

// TestKeyFileWithoutAnchor checks that there is no anchor unless it was created
// explicitly: next to a key in a tmpfs or on a slot of an A/B update it would
// be lost.
func TestKeyFileWithoutAnchor(t *testing.T) {
	s := sealedByFile(t)
	s.gone()
	older, _, _ := s.run(s.config, "a")
	s.run(s.config, "b")
	must(t, os.WriteFile(s.path, older, 0o600))
	if _, had, refused := s.run(s.config); had != "a" || refused != nil {
		t.Errorf("pods %q, refused: %v", had, refused)
	}
}

func TestFileAnchor(t *testing.T) {
	a := NewFileAnchor(filepath.Join(t.TempDir(), "anchor"))
	if _, _, _, err := a.Read(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, _, err := a.Begin(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("begin without a file: %v", err)
	}
	must(t, a.Make())
	id, generation, bound, err := a.Read()
	if err != nil || generation != 0 || bound || id == [16]byte{} {
		t.Errorf("a new one: %x, %d, %v, %v", id, generation, bound, err)
	}
	must(t, a.Advance(5))
	must(t, a.Advance(3))
	must(t, a.Make())
	if again, generation, bound, err := a.Read(); err != nil || generation != 5 || !bound || again != id {
		t.Errorf("advanced: %x, %d, %v, %v", again, generation, bound, err)
	}
	must(t, os.WriteFile(a.path, []byte("torn"), 0o600))
	if _, _, _, err := a.Read(); err == nil || errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "--migrate") {
		t.Errorf("a torn one: %v", err)
	}
}

// FuzzAnchor checks that only the output of encode is accepted as an anchor.
func FuzzAnchor(f *testing.F) {
	for _, s := range []anchorState{{}, {id: [16]byte{1, 255}, generation: 1<<64 - 1, bound: true}} {
		f.Add(s.encode())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, ok := parseAnchor(text); ok && !bytes.Equal(s.encode(), text) {
			t.Fatalf("%q was taken for %+v", text, s)
		}
	})
}
