package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/source/offline"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

func journalKey(t *testing.T, s *system, args ...string) (string, error) {
	t.Helper()
	cmd := s.journalKey()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func fileKey(t *testing.T, path string) []byte {
	t.Helper()
	key, err := offline.KeyFile(path)()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestJournalKeyInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.key")
	out, err := journalKey(t, &system{}, "--out", path)
	if err != nil || !strings.Contains(out, "\n  journalKeyFile: "+path+"\n") {
		t.Fatalf("error %v, output %s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	first := fileKey(t, path)
	if _, err := journalKey(t, &system{}, "--out", path); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a file that exists: error %v", err)
	}
	if !bytes.Equal(fileKey(t, path), first) {
		t.Error("the key was replaced")
	}
	if _, err := journalKey(t, &system{}, "--out", path, "--force"); err != nil || bytes.Equal(fileKey(t, path), first) {
		t.Errorf("with --force: error %v", err)
	}
	out, err = journalKey(t, &system{}, "--out", path+"2", "--from", path, "-o", "json")
	if err != nil || !strings.Contains(out, `"setting": "journalKeyFile"`) || !bytes.Equal(fileKey(t, path), fileKey(t, path+"2")) {
		t.Errorf("with --from: error %v, output %s", err, out)
	}
}

func TestJournalKeyRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"no file":               {"--tpm"},
		"an anchor and a TPM":   {"--out", "FILE", "--tpm", "--anchor"},
		"PCRs without a TPM":    {"--out", "FILE", "--pcrs", "7"},
		"no such PCR":           {"--out", "FILE", "--tpm", "--pcrs", "24"},
		"no number":             {"--out", "FILE", "--tpm", "--pcrs", "seven"},
		"no TPM":                {"--out", "FILE", "--tpm"},
		"no key to be sealed":   {"--out", "FILE", "--from", "/nowhere"},
		"a folder that is none": {"--out", "FILE/key"},
		"an argument":           {"--out", "FILE", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if name == "a folder that is none" {
				if err := os.WriteFile(filepath.Join(dir, "key"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for i := range args {
				args[i] = strings.Replace(args[i], "FILE", filepath.Join(dir, "key"), 1)
			}
			if out, err := journalKey(t, &system{tpm: filepath.Join(dir, "tpmrm0")}, args...); err == nil || out != "" {
				t.Errorf("error %v, output %s", err, out)
			}
			if info, err := os.Stat(filepath.Join(dir, "key")); err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

// TestJournalMigrate seals the journal of an agent without a key, with the key that the
// configuration names.
func TestJournalMigrate(t *testing.T) {
	dir := t.TempDir()
	key, file := filepath.Join(dir, "journal.key"), filepath.Join(dir, "config.yaml")
	s := &system{root: dir}
	migrate := func(args ...string) (string, error) {
		t.Helper()
		return journalKey(t, s, append([]string{"--migrate", "--config", file, "--root-dir", dir}, args...)...)
	}
	if _, err := journalKey(t, s, "--out", key); err != nil {
		t.Fatal(err)
	}
	configure := func(tinylet string) {
		t.Helper()
		text := "apiVersion: tinylet.dev/v1alpha1\nkind: TinyletConfiguration\n" + tinylet
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("")
	if out, err := migrate(); err == nil || !strings.Contains(err.Error(), "journalKeyTPMFile") {
		t.Errorf("no key: error %v, output %s", err, out)
	}
	configure("journalKeyFile: " + key + "\n")
	if out, err := migrate(); err != nil || !strings.Contains(out, "nothing to migrate") {
		t.Errorf("no journal: error %v, output %s", err, out)
	}
	kept := offline.Config{Dir: filepath.Join(dir, "tinylet", "journal"), Log: slog.New(slog.DiscardHandler)}
	keep := func(uid string) {
		t.Helper()
		store, err := offline.Open(kept)
		if err != nil {
			t.Fatal(err)
		}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
		if err := errors.Join(store.Admit(t.Context(), p), store.Close()); err != nil {
			t.Fatal(err)
		}
	}
	keep("a")
	out, err := migrate("-o", "json", "--anchor")
	if err != nil || !strings.Contains(out, `"from": "`+kept.Dir+`"`) {
		t.Errorf("error %v, output %s", err, out)
	}
	if _, err := os.Stat(key + offline.AnchorSuffix); err != nil {
		t.Errorf("the anchor: %v", err)
	}
	tc := configOf(key)
	kept.Key, kept.Anchor = offline.Sources(&tc, "")
	keep("b")
	store, err := offline.Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	if uids := store.UIDs(); len(uids) != 2 || store.QuarantineReason() != nil {
		t.Errorf("pods %q, refused: %v", uids, store.QuarantineReason())
	}
	if _, err := migrate(); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("with an agent: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := migrate(); err != nil || !strings.Contains(out, "nothing to migrate") {
		t.Errorf("again: error %v, output %s", err, out)
	}
	for _, args := range [][]string{{"--out", key}, {"--tpm"}, {"--force"}} {
		if _, err := migrate(args...); err == nil || !strings.Contains(err.Error(), "without --migrate") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func configOf(key string) config.TinyletConfiguration {
	return config.TinyletConfiguration{JournalKeyFile: key}
}

func TestJournalKeyOfATPM(t *testing.T) {
	if _, err := exec.LookPath("swtpm"); err != nil {
		t.Skip("no TPM is emulated here: apt-get install swtpm")
	}
	dir, err := os.MkdirTemp("", "tpm") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	socket, plain, path := filepath.Join(dir, "socket"), filepath.Join(dir, "plain"), filepath.Join(dir, "sealed")
	swtpm := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir, "--server", "type=unixio,path="+socket, "--flags", "not-need-init,startup-clear")
	if err := swtpm.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = swtpm.Process.Kill()
		_ = swtpm.Wait() // it was killed
		_ = os.RemoveAll(dir)
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	s := &system{tpm: socket}
	if _, err := journalKey(t, s, "--out", plain); err != nil {
		t.Fatal(err)
	}
	out, err := journalKey(t, s, "--tpm", "--pcrs", "7,4", "--from", plain, "--out", path)
	if err != nil || !strings.Contains(out, "\n  journalKeyTPMFile: "+path+"\n") {
		t.Fatalf("error %v, output %s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	if key, err := tpmkey.Source(path, socket)(); err != nil || !bytes.Equal(key, fileKey(t, plain)) {
		t.Errorf("the agent unseals another key, error %v", err)
	}
}
