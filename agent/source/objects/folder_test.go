package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// told collects the messages of a Folder.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (t *told) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
}

func (t *told) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.lines)
}

func open(t *testing.T, dir string) (*Folder, *told) {
	t.Helper()
	said := &told{}
	f, err := NewFolder(Config{Path: dir, Log: slog.New(slog.DiscardHandler), Event: said.add})
	if err != nil {
		t.Fatal(err)
	}
	return f, said
}

// put writes a file as if long ago, by renaming.
func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(filepath.Dir(path), ".new")
	if err := os.WriteFile(temp, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(temp, old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		t.Fatal(err)
	}
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: %q}\n", name, value)
}

func valueOf(t *testing.T, f *Folder, name string) string {
	t.Helper()
	m, err := f.ConfigMap(t.Context(), "default", name)
	if apierrors.IsNotFound(err) {
		return "not found"
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.Data["k"]
}

func TestReads(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/all.yaml", `# everything
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: x}
data: {one: "1"}
binaryData: {two: AAEC}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Secret
  metadata: {name: s}
  data: {a: YQ==, b: Yg==}
  stringData: {b: over}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: {name: c}
  spec: {volumeName: pv, resources: {requests: {storage: 1Gi}}}
`)
	put(t, dir+"/pv.json", `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"pv","namespace":"no"},"spec":{"capacity":{"storage":"1Gi"},"local":{"path":"/mnt/x"}}}`)
	f, said := open(t, dir)
	ctx := t.Context()
	m, err := f.ConfigMap(ctx, "x", "a")
	if err != nil || m.Data["one"] != "1" || string(m.BinaryData["two"]) != "\x00\x01\x02" {
		t.Errorf("config map %v, %v", m, err)
	}
	s, err := f.Secret(ctx, "default", "s")
	if err != nil || string(s.Data["a"]) != "a" || string(s.Data["b"]) != "over" || s.StringData != nil {
		t.Errorf("secret %v, %v", s, err)
	}
	c, err := f.PersistentVolumeClaim(ctx, "default", "c")
	if err != nil || c.Spec.VolumeName != "pv" {
		t.Errorf("claim %v, %v", c, err)
	}
	pv, err := f.PersistentVolume(ctx, "pv")
	if err != nil || pv.Spec.Local.Path != "/mnt/x" || pv.Namespace != "" {
		t.Errorf("volume %v, %v", pv, err)
	}
	_, err = f.ConfigMap(ctx, "default", "a")
	if !apierrors.IsNotFound(err) || err.Error() != `configmap "a" not found` {
		t.Errorf("another namespace: %v", err)
	}
	if _, _, err := f.Token(ctx, &v1.Pod{}, "", 0); !errors.Is(err, ErrNoServer) {
		t.Errorf("token: %v", err)
	}
	if _, err := f.TrustBundle(ctx, nil); !errors.Is(err, ErrNoServer) {
		t.Errorf("trust bundle: %v", err)
	}
	if lines := said.all(); len(lines) > 0 {
		t.Errorf("said %q", lines)
	}
}

func TestBadFileKeepsObjects(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a.yaml", configMap("a", "old"))
	f, said := open(t, dir)
	if got := valueOf(t, f, "a"); got != "old" {
		t.Fatalf("got %q", got)
	}
	put(t, dir+"/a.yaml", configMap("a", "new")+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {na")
	for range 3 {
		if got := valueOf(t, f, "a"); got != "old" {
			t.Errorf("got %q", got)
		}
	}
	if lines := said.all(); len(lines) != 1 || !strings.Contains(lines[0], dir+"/a.yaml: document 2: parse YAML") {
		t.Errorf("said %q", lines)
	}
	put(t, dir+"/a.yaml", configMap("a", "new"))
	if got := valueOf(t, f, "a"); got != "new" {
		t.Errorf("got %q", got)
	}
	if lines := said.all(); len(lines) != 1 {
		t.Errorf("said %q", lines)
	}
}

func TestHalfWritten(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a.yaml", configMap("a", "old"))
	f, said := open(t, dir)
	now := time.Now()
	f.now = func() time.Time { return now }
	_ = valueOf(t, f, "a")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(dir+"/a.yaml", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir+"/a.yaml", now, now); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	for _, after := range []time.Duration{0, settleTime - 1, settleTime, doubtTime - 2*settleTime - 1} {
		now = now.Add(after)
		if got := valueOf(t, f, "a"); got != "old" || len(said.all()) > 0 {
			t.Errorf("%v on: got %q, said %q", after, got, said.all())
		}
	}
	write(configMap("a", "new"))
	if got := valueOf(t, f, "a"); got != "old" {
		t.Errorf("not settled: got %q", got)
	}
	now = now.Add(settleTime)
	if got := valueOf(t, f, "a"); got != "new" || len(said.all()) > 0 {
		t.Errorf("settled: got %q, said %q", got, said.all())
	}
}

func TestRemovedFile(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a.yaml", configMap("a", "1"))
	put(t, dir+"/b.yaml", configMap("a", "2")+"---\n"+configMap("b", "3"))
	f, said := open(t, dir)
	now := time.Now()
	f.now = func() time.Time { return now }
	if got := valueOf(t, f, "a") + valueOf(t, f, "b"); got != "13" {
		t.Errorf("got %q", got)
	}
	if lines := said.all(); len(lines) != 1 || !strings.Contains(lines[0], "b.yaml: ignoring ConfigMap default/a") {
		t.Errorf("said %q", lines)
	}
	if err := os.Remove(dir + "/a.yaml"); err != nil {
		t.Fatal(err)
	}
	if got := valueOf(t, f, "a"); got != "1" {
		t.Errorf("at once: got %q", got)
	}
	now = now.Add(settleTime)
	if got := valueOf(t, f, "a"); got != "2" {
		t.Errorf("got %q", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_ = valueOf(t, f, "a")
	now = now.Add(settleTime)
	if got := valueOf(t, f, "a"); got != "not found" {
		t.Errorf("without the folder: got %q", got)
	}
}

func TestFilesThatDoNotCount(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	put(t, outside+"/o.yaml", configMap("outside", "x"))
	put(t, dir+"/.hidden.yaml", configMap("hidden", "x"))
	put(t, dir+"/sub/a.yaml", configMap("sub", "x"))
	put(t, dir+"/..v1/in.yaml", configMap("inside", "yes"))
	for name, target := range map[string]string{
		"out.yaml": outside + "/o.yaml", "..data": "..v1", "in.yaml": "..data/in.yaml", "loop.yaml": "loop.yaml",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(dir+"/fifo.yaml", 0o600); err != nil {
		t.Fatal(err)
	}
	big, err := os.Create(dir + "/big.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(big.Truncate(maxFile+1), big.Close()); err != nil {
		t.Fatal(err)
	}
	f, said := open(t, dir)
	for name, want := range map[string]string{"outside": "not found", "hidden": "not found", "sub": "not found", "inside": "yes"} {
		if got := valueOf(t, f, name); got != want {
			t.Errorf("%s: got %q", name, got)
		}
	}
	text := strings.Join(said.all(), "\n")
	for _, want := range []string{"out.yaml: ", "loop.yaml: ", "fifo.yaml: not a regular file", "big.yaml: larger"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q not once in %s", want, text)
		}
	}
}

// TestExposedSecret checks that Secrets which other users can read are ignored,
// unlike the other objects of their file, and that they are used once the mode
// of the file or directory is right.
func TestExposedSecret(t *testing.T) {
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: x}\n---\n"
	for _, row := range []struct {
		name         string
		folder, file os.FileMode
		mend         string
		used         bool
	}{
		{"all may read it", 0o755, 0o644, "s.yaml", false},
		{"all may read it, until the folder is closed", 0o755, 0o644, "", false},
		{"the group may read it", 0o750, 0o640, "s.yaml", false},
		{"nobody may enter the folder", 0o700, 0o644, "s.yaml", true},
		{"the owner alone", 0o755, 0o600, "s.yaml", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir+"/s.yaml", secret+configMap("a", "x"))
			chmod := func(path string, mode os.FileMode) {
				t.Helper()
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			chmod(dir+"/s.yaml", row.file)
			chmod(dir, row.folder)
			f, said := open(t, dir)
			for range 3 {
				if got := valueOf(t, f, "a"); got != "x" {
					t.Errorf("the ConfigMap has %q", got)
				}
				_, err := f.Secret(t.Context(), "default", "s")
				if row.used && err != nil || !row.used && !errors.Is(err, secretfile.ErrExposed) {
					t.Errorf("the Secret: %v", err)
				}
			}
			if lines := said.all(); len(lines) != 1 && !row.used || row.used && len(lines) > 0 || !row.used && !strings.Contains(lines[0], "s.yaml: ignoring its Secrets") {
				t.Errorf("said %q", lines)
			}
			chmod(filepath.Join(dir, row.mend), 0o700)
			if _, err := f.Secret(t.Context(), "default", "s"); err != nil {
				t.Errorf("the Secret after chmod: %v", err)
			}
		})
	}
}

func TestUnreadableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "")
	f, said := open(t, file)
	for range 2 {
		if _, err := f.Secret(t.Context(), "default", "s"); err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), file) {
			t.Errorf("got %v", err)
		}
	}
	if lines := said.all(); len(lines) != 1 {
		t.Errorf("said %q", lines)
	}
}

func TestRunTellsOfChanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not/yet")
	changed := make(chan string, 100)
	f, err := NewFolder(Config{
		Path: dir, Log: slog.New(slog.DiscardHandler),
		Changed: func(kind, namespace, name string) { changed <- kind + " " + namespace + "/" + name },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	watched := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.watched && f.scanned
	}
	for !watched() {
		time.Sleep(time.Millisecond)
	}
	next := func(want string) {
		t.Helper()
		select {
		case got := <-changed:
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("not told of %q", want)
		}
	}
	put(t, dir+"/a.yaml", configMap("a", "1"))
	next("ConfigMap default/a")
	put(t, dir+"/a.yaml", configMap("a", "2"))
	next("ConfigMap default/a")
	// A comment is no change; the next file is.
	put(t, dir+"/a.yaml", "# same\n"+configMap("a", "2"))
	put(t, dir+"/v.yaml", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\n")
	next("PersistentVolume /v")
	// The folder is replaced as a whole.
	put(t, dir+".new/a.yaml", configMap("b", "3"))
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Rename(dir+".new", dir)); err != nil {
		t.Fatal(err)
	}
	got := []string{<-changed, <-changed, <-changed}
	slices.Sort(got)
	want := []string{"ConfigMap default/a", "ConfigMap default/b", "PersistentVolume /v"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	put(t, dir+"/a.yaml", configMap("b", "4"))
	next("ConfigMap default/b")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	next("ConfigMap default/b")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestWatchedReadsCostNothing checks that reads do not check the files of an
// idle directory.
func TestWatchedReadsCostNothing(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a.yaml", configMap("a", "1"))
	f, _ := open(t, dir)
	_ = valueOf(t, f, "a")
	f.watched = true
	// A look would see it.
	put(t, dir+"/a.yaml", configMap("a", "2"))
	if n := testing.AllocsPerRun(100, func() { _, _ = f.ConfigMap(t.Context(), "default", "a") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if got := valueOf(t, f, "a"); got != "1" {
		t.Errorf("got %q", got)
	}
	if _, err := f.watch.Set(dir); err != nil {
		t.Fatal(err)
	}
	defer f.watch.Close()
	put(t, dir+"/a.yaml", configMap("a", "3"))
	for deadline := time.Now().Add(20 * time.Second); !f.watch.Pending(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no change is reported")
		}
	}
	if got := valueOf(t, f, "a"); got != "3" {
		t.Errorf("got %q", got)
	}
}

func TestConfigChecks(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, config := range []Config{{Log: log}, {Path: "/x"}, {Path: "/x\x00", Log: log}} {
		if _, err := NewFolder(config); err == nil {
			t.Errorf("%+v passed", config)
		}
	}
}

func TestRuntimeClass(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/class.yaml", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: sandboxed, namespace: ignored}\nhandler: kata\n")
	f, said := open(t, dir)
	class, err := f.RuntimeClass(t.Context(), "sandboxed")
	if err != nil || class.Handler != "kata" || class.Namespace != "" {
		t.Errorf("class %+v: %v, %q", class, err, said.all())
	}
	if _, err := f.RuntimeClass(t.Context(), "other"); !apierrors.IsNotFound(err) {
		t.Errorf("a class that is not there: %v", err)
	}
}
