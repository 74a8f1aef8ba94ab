package preload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distribution/reference"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/containerd"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// shelf is a node's folder of archives and its runtime.
type shelf struct {
	*testing.T
	dir, state string
	rt         *fake.Runtime
	importer   Importer
	events     *event.Recorder
	log        *slog.Logger
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	s := &shelf{T: t, dir: filepath.Join(dir, "images"), state: filepath.Join(dir, "state", "preload.json"), rt: fake.New(fake.Config{}), events: event.NewRecorder(log), log: log}
	s.importer = s.rt
	return s
}

// put creates a file with an old modification time.
func (s *shelf) put(name string, data []byte) {
	s.Helper()
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		s.Fatal(err)
	}
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".part", data, 0o644); err != nil {
		s.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path+".part", old, old); err != nil {
		s.Fatal(err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		s.Fatal(err)
	}
}

// start runs a preloader until stop is called, or to the test's end.
func (s *shelf) start() (p *Preloader, stop func()) {
	s.Helper()
	p, err := New(Config{
		Dir: s.dir, StateFile: s.state, Importer: s.importer, Images: s.rt,
		Platform: board, Events: s.events, Log: s.log,
	})
	if err != nil {
		s.Fatal(err)
	}
	return p, s.run(p)
}

// run runs p until stop is called.
func (s *shelf) run(p *Preloader) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); !errors.Is(err, context.Canceled) {
			s.Errorf("Run ended with %v", err)
		}
	})
	stop = func() {
		cancel()
		wg.Wait()
	}
	s.Cleanup(stop)
	return stop
}

// wait calls Wait for an image with a timeout of some seconds.
func (s *shelf) wait(p *Preloader, ref string) bool {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	known := p.Wait(ctx, ref)
	if ctx.Err() != nil {
		s.Fatalf("waited too long for %q", ref)
	}
	return known
}

func (s *shelf) eventually(what string, check func() bool) {
	s.Helper()
	for deadline := time.Now().Add(10 * time.Second); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("waited too long for %s", what)
		}
	}
}

func (s *shelf) settled(p *Preloader) {
	s.Helper()
	s.eventually("rest", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range p.archives {
			if f.state < done {
				return false
			}
		}
		return p.ready
	})
}

func (s *shelf) failures() (out []string) {
	for _, e := range s.events.Recent() {
		if e.Reason == eventFailed {
			out = append(out, e.Message)
		}
	}
	return out
}

func TestImport(t *testing.T) {
	for _, form := range []string{"oci.tar", "oci.tar.gz", "docker.tar", "docker.tgz"} {
		t.Run(form, func(t *testing.T) {
			s := newShelf(t)
			m := makeImage(t, board, "app")
			data := ociArchive(t, m, "app:1")
			if strings.HasPrefix(form, "docker") {
				data = dockerArchive(t, m, "app:1")
			}
			if strings.HasSuffix(form, "gz") {
				data = zip(t, data)
			}
			s.put(form, data)
			p, stop := s.start()
			if !s.wait(p, "app:1") || !s.rt.HasImage("app:1") {
				t.Fatalf("the image is not there; %v", s.failures())
			}
			if s.wait(p, "another:1") {
				t.Error("an image is known that no archive has")
			}
			s.eventually("the end of the lease", func() bool { return s.rt.Count("Release") == 1 })
			if n := len(s.rt.Blobs()); n != 4 {
				t.Errorf("%d blobs are left, want 4", n)
			}
			for _, l := range m.layers {
				if !slices.Contains(s.rt.Blobs(), digest.FromBytes(l)) {
					t.Errorf("layer %s is not there", digest.FromBytes(l))
				}
			}
			s.eventually("the journal's word of it", func() bool {
				data, err := os.ReadFile(s.state)
				return err == nil && !bytes.Contains(data, []byte("leased"))
			})
			stop()

			before := s.rt.Count()
			p, _ = s.start()
			s.settled(p)
			if n := s.rt.Count() - before; n != 0 {
				t.Errorf("the second start made %d calls: %v", n, s.rt.Calls()[before:])
			}
		})
	}
}

// TestImportAgain shows that a removed image is imported again when a pod needs
// it, also after a restart, and not before.
func TestImportAgain(t *testing.T) {
	s := newShelf(t)
	s.put("a.tar", ociArchive(t, makeImage(t, board, "app"), "app:1"))
	p, stop := s.start()
	s.wait(p, "app:1")
	s.settled(p)
	stop()
	s.rt.DropImage("app:1")
	s.rt.CollectContent()
	p, _ = s.start()
	s.settled(p)
	if s.rt.HasImage("app:1") {
		t.Error("the image came back though nobody wants it")
	}
	if !s.wait(p, "docker.io/library/app:1") || !s.rt.HasImage("app:1") {
		t.Error("the image did not come back")
	}
	// Once more at once: it would come back for ever if it went as fast.
	s.rt.DropImage("app:1")
	before := s.rt.Count("Put")
	if !s.wait(p, "app:1") || s.rt.Count("Put") != before {
		t.Error("the archive is imported without a pause")
	}
}

func TestWaitByDigest(t *testing.T) {
	s := newShelf(t)
	m := makeImage(t, board, "app")
	s.put("a.tar", ociArchive(t, m, "app:1"))
	p, _ := s.start()
	for _, ref := range []string{"app@" + digest.FromBytes(m.manifest).String(), "app:1@" + digest.FromBytes(m.manifest).String()} {
		if !s.wait(p, ref) {
			t.Errorf("%q is not known", ref)
		}
	}
	if !s.rt.HasImage("docker.io/library/app@" + digest.FromBytes(m.manifest).String()) {
		t.Error("the image has no digest")
	}
}

func TestReplacedArchive(t *testing.T) {
	s := newShelf(t)
	p, _ := s.start()
	s.eventually("the folder", func() bool { _, err := os.Stat(s.dir); return err == nil })
	if s.wait(p, "app:1") {
		t.Error("an image is known in an empty folder")
	}
	s.put("a.tar", ociArchive(t, makeImage(t, board, "one"), "app:1"))
	s.eventually("the image", func() bool { return s.rt.HasImage("app:1") })
	second := makeImage(t, board, "a second one")
	s.put("a.tar", ociArchive(t, second, "app:1"))
	s.eventually("the second image", func() bool { return slices.Contains(s.rt.Blobs(), digest.FromBytes(second.manifest)) })
	s.settled(p)
	if err := os.Remove(filepath.Join(s.dir, "a.tar")); err != nil {
		t.Fatal(err)
	}
	s.eventually("the end of the archive", func() bool { return !s.wait(p, "app:1") })
	s.eventually("the journal", func() bool {
		j, err := loadJournal(s.state)
		return err == nil && len(j.Archives) == 0 && !j.Leased
	})
}

func TestBrokenArchive(t *testing.T) {
	m := makeImage(t, board, "app")
	whole := ociArchive(t, m, "app:1")
	flipped := bytes.Replace(whole, m.layers[1][:100], append([]byte("X"), m.layers[1][1:100]...), 1)
	for name, data := range map[string][]byte{
		"truncated":               whole[:len(whole)/3],
		"layer of another digest": flipped,
		"the same, compressed":    zip(t, flipped),
		"wrong platform":          ociArchive(t, makeImage(t, other, "app"), "app:1"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			s.put("a.tar", data)
			s.put("b.tar", ociArchive(t, makeImage(t, board, "good"), "good:1"))
			p, _ := s.start()
			s.wait(p, "app:1")
			s.settled(p)
			if !s.rt.HasImage("good:1") || s.rt.HasImage("app:1") {
				t.Error("not just the good image is there")
			}
			s.wait(p, "app:1") // is not a reason to try again
			if f := s.failures(); len(f) != 1 || !strings.Contains(f[0], `"a.tar"`) {
				t.Errorf("events: %q", f)
			}
			s.put("a.tar", whole)
			s.eventually("the corrected image", func() bool { return s.rt.HasImage("app:1") })
			s.settled(p)
			s.eventually("the end of the lease", func() bool { return s.rt.Count("Release") > 0 })
		})
	}
}

// asking is an error that calls ask when it is compared with container.ErrUnavailable.
type asking struct{ ask func() }

func (asking) Error() string { return "disk error" }

func (a asking) Is(target error) bool {
	if target == container.ErrUnavailable { //nolint:errorlint // this is the comparison
		a.ask()
	}
	return false
}

// TestNeededDuringFailure lets a pod ask for an image while a failure is handled.
func TestNeededDuringFailure(t *testing.T) {
	s := newShelf(t)
	p, err := New(Config{Dir: s.dir, StateFile: s.state, Importer: s.importer, Images: s.rt, Events: s.events, Log: s.log})
	if err != nil {
		t.Fatal(err)
	}
	f := &archiveFile{name: "a.tar", state: failed, failures: maxFailures, images: map[string]digest.Digest{"app:1": ""}}
	p.archives[f.name] = f
	p.fail(t.Context(), f, asking{func() { p.lookup("app:1", new(bool)) }})
	if f.state != failed || len(s.failures()) != 1 {
		t.Errorf("state %d, events %q; want a failed archive and its event", f.state, s.failures())
	}
}

// TestErrorTexts shows that the error of a tag says once what was attempted.
func TestErrorTexts(t *testing.T) {
	store, err := containerd.New(filepath.Join(t.TempDir(), "none.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p := Preloader{cfg: Config{Importer: store}}
	err = p.tagAll(t.Context(), &plan{images: []plannedImage{{names: []reference.NamedTagged{parseTag("app:1")}}}})
	if strings.Count(fmt.Sprint(err), "tag image") != 1 {
		t.Errorf("the error is %v", err)
	}
}

// TestReleaseAgain shows that a release that failed is tried again without a change.
func TestReleaseAgain(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t)
		p, err := New(Config{Dir: s.dir, StateFile: s.state, Importer: s.rt, Images: s.rt, Events: s.events, Log: s.log})
		if err != nil {
			t.Fatal(err)
		}
		p.journal.Leased = true
		s.rt.Inject("Release", fake.Fault{Err: container.ErrUnavailable, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), retryMax+time.Second)
		defer cancel()
		if err := p.workAll(ctx, root, nil); err != nil {
			t.Errorf("the folder is not listed again: %v", err)
		}
		if err := p.workAll(ctx, root, nil); !errors.Is(err, context.DeadlineExceeded) || p.journal.Leased || s.rt.Count("Release") != 2 {
			t.Errorf("error %v, leased %v, %d releases; want the end of the test, false and 2", err, p.journal.Leased, s.rt.Count("Release"))
		}
	})
}

// dying interrupts a Put after some bytes, as a power cut does.
type dying struct {
	*fake.Runtime
	left int64
	died chan struct{}
	once sync.Once
}

func (d *dying) Put(ctx context.Context, b container.Blob, r io.Reader) error {
	return d.Runtime.Put(ctx, b, readerFunc(func(p []byte) (int, error) {
		if d.left <= 0 {
			d.once.Do(func() { close(d.died) })
			<-ctx.Done()
			return 0, ctx.Err()
		}
		n, err := r.Read(p[:min(int64(len(p)), d.left)])
		d.left -= int64(n)
		return n, err
	}))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestPowerCut(t *testing.T) {
	for _, form := range []string{"plain", "gzip"} {
		t.Run(form, func(t *testing.T) {
			s := newShelf(t)
			m := makeImage(t, board, "app")
			data := ociArchive(t, m, "app:1")
			if form == "gzip" {
				data = zip(t, data)
			}
			s.put("a.tar", data)
			d := &dying{Runtime: s.rt, left: 10_000, died: make(chan struct{})}
			s.importer = d
			_, stop := s.start()
			<-d.died
			stop()
			s.rt.CollectContent() // the lease holds what was written
			s.importer = s.rt
			p, _ := s.start()
			if !s.wait(p, "app:1") || !s.rt.HasImage("app:1") {
				t.Fatal("the image is not there")
			}
			var size int64
			for _, data := range append(m.layers, m.config, m.manifest) {
				size += int64(len(data))
			}
			if read := s.rt.ContentRead(); read != size {
				t.Errorf("%d bytes were written for %d: it was not resumed", read, size)
			}
		})
	}
}

func TestPowerCutThenRemoved(t *testing.T) {
	s := newShelf(t)
	s.put("a.tar", ociArchive(t, makeImage(t, board, "app"), "app:1"))
	d := &dying{Runtime: s.rt, left: 10_000, died: make(chan struct{})}
	s.importer = d
	_, stop := s.start()
	<-d.died
	stop()
	if err := os.Remove(filepath.Join(s.dir, "a.tar")); err != nil {
		t.Fatal(err)
	}
	s.importer = s.rt
	s.start()
	s.eventually("the end of the lease", func() bool { return s.rt.Count("Release") == 1 && len(s.rt.Blobs()) == 0 })
}

func TestRuntimeAway(t *testing.T) {
	s := newShelf(t)
	s.put("a.tar", ociArchive(t, makeImage(t, board, "app"), "app:1"))
	s.rt.Stop()
	p, _ := s.start()
	var wg sync.WaitGroup
	wg.Go(func() {
		if !s.wait(p, "app:1") || !s.rt.HasImage("app:1") {
			t.Error("the image is not there")
		}
	})
	s.eventually("a first attempt", func() bool { return s.rt.Count("Protect") > 0 })
	s.rt.Start()
	wg.Wait()
	if f := s.failures(); len(f) > 0 {
		t.Errorf("events: %q", f)
	}
}

func TestNoImport(t *testing.T) {
	s := newShelf(t)
	s.put("a.tar", ociArchive(t, makeImage(t, board, "app"), "app:1"))
	s.rt.Inject("Protect", fake.Fault{Err: container.ErrUnsupported})
	p, _ := s.start()
	if !s.wait(p, "app:1") {
		t.Error("the archive is not known")
	}
	s.settled(p)
	if f := s.failures(); len(f) != 1 {
		t.Errorf("events: %q", f)
	}
}

func TestGrowingFile(t *testing.T) {
	s := newShelf(t)
	data := ociArchive(t, makeImage(t, board, "app"), "app:1")
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p, _ := s.start()
	f, err := os.Create(filepath.Join(s.dir, "a.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for part := range 4 {
		if _, err := f.Write(data[len(data)*part/4 : len(data)*(part+1)/4]); err != nil {
			t.Fatal(err)
		}
		s.put("other.tar", ociArchive(t, makeImage(t, board, fmt.Sprint(part)), "other:1")) // has the folder read
		time.Sleep(100 * time.Millisecond)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !s.wait(p, "app:1") || !s.rt.HasImage("app:1") {
		t.Error("the image is not there")
	}
	if f := s.failures(); len(f) > 0 {
		t.Errorf("events: %q", f)
	}
}

func TestFolderMoves(t *testing.T) {
	s := newShelf(t)
	p, _ := s.start()
	s.settled(p)
	if err := os.Rename(s.dir, s.dir+".old"); err != nil {
		t.Fatal(err)
	}
	s.eventually("a new folder", func() bool { _, err := os.Stat(s.dir); return err == nil })
	s.put("a.tar", ociArchive(t, makeImage(t, board, "app"), "app:1"))
	s.eventually("the image", func() bool { return s.rt.HasImage("app:1") })
}

func TestOtherFiles(t *testing.T) {
	s := newShelf(t)
	s.put("notes.txt", []byte("x"))
	s.put(".a.tar", []byte("x"))
	if err := os.Mkdir(filepath.Join(s.dir, "folder.tar"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(s.dir, "link.tar")); err != nil {
		t.Fatal(err)
	}
	p, _ := s.start()
	if s.wait(p, "app:1") {
		t.Error("an image is known")
	}
	if f := s.failures(); len(f) > 0 {
		t.Errorf("events: %q", f)
	}
}

func TestWaitEnds(t *testing.T) {
	s := newShelf(t)
	s.put("a.tar", ociArchive(t, makeImage(t, board, "app"), "app:1"))
	s.rt.Inject("Protect", fake.Fault{Hang: true})
	p, stop := s.start()
	s.eventually("the import", func() bool { return s.rt.Count("Protect") > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if !p.Wait(ctx, "app:1") {
		t.Error("the archive is not known")
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.wait(p, "app:1") })
	stop()
	wg.Wait()
	if s.wait(p, "not a name") {
		t.Error("what is no name is known")
	}
}

// lateInfo is the info of a file from a time that JSON does not have.
type lateInfo struct{ fs.FileInfo }

func (lateInfo) Size() int64        { return 1 }
func (lateInfo) ModTime() time.Time { return time.Date(12000, 1, 2, 3, 4, 5, 6, time.UTC) }

// TestNameNotUTF8 shows that a file whose name the journal cannot hold is not imported.
func TestNameNotUTF8(t *testing.T) {
	s := newShelf(t)
	s.put("a\xff.tar", ociArchive(t, makeImage(t, board, "app"), "app:1"))
	p, _ := s.start()
	if s.wait(p, "app:1") || s.rt.HasImage("app:1") {
		t.Error("the image is known")
	}
	if f := s.failures(); len(f) != 1 || !strings.Contains(f[0], "UTF-8") {
		t.Errorf("events: %q", f)
	}
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "journal")
	want := &journal{Version: 1, Leased: true, Archives: []imported{{
		Name: "a.tar", signature: signature{Size: 5, Modified: time.Unix(1, 2).UTC()}, Images: map[string]digest.Digest{"a:1": "sha256:x"},
	}}}
	if err := want.save(path); err != nil {
		t.Fatal(err)
	}
	got, err := loadJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(imported{})); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	t.Run("after the year 9999", func(t *testing.T) {
		sig := signatureOf(lateInfo{})
		if sig.Modified != signatureOf(lateInfo{}).Modified {
			t.Error("the signature differs from itself")
		}
		if err := (&journal{Archives: []imported{{signature: sig}}}).save(path); err != nil {
			t.Error(err)
		}
	})
	t.Run("too large", func(t *testing.T) {
		j := &journal{Version: journalVersion}
		for i := range 10 {
			j.Archives = append(j.Archives, imported{Name: fmt.Sprint(i), Images: map[string]digest.Digest{strings.Repeat("x", 1<<20): ""}})
		}
		if err := j.save(path); err == nil || !strings.Contains(err.Error(), "3 of 10") {
			t.Errorf("save: %v", err)
		}
		if got, err := loadJournal(path); err != nil || len(got.Archives) != 7 || got.Archives[6].Name != "9" {
			t.Errorf("it reads as %d archives, %v", len(got.Archives), err)
		}
	})
	for name, text := range map[string]string{"broken": "{", "another version": `{"version":2}`, "empty": ""} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if j, err := loadJournal(path); err == nil || len(j.Archives) > 0 {
				t.Errorf("it reads as %v, %v", j, err)
			}
		})
	}
}
