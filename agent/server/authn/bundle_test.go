package authn

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

func decode(t testing.TB, data []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("no PEM in %q", data)
	}
	return block.Bytes
}

// told is a log handler that sends its messages to a channel.
type told chan string

func (l told) Enabled(context.Context, slog.Level) bool      { return true }
func (l told) Handle(_ context.Context, r slog.Record) error { l <- r.Message; return nil }
func (l told) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l told) WithGroup(string) slog.Handler                 { return l }
func (l told) wait(t *testing.T, part string) {
	t.Helper()
	for {
		select {
		case message := <-l:
			if strings.Contains(message, part) {
				return
			}
			t.Errorf("told %q, want %q", message, part)
		case <-t.Context().Done():
			t.Fatalf("nobody told %q", part)
		case <-time.After(20 * time.Second):
			t.Fatalf("nobody told %q", part)
		}
	}
}

const (
	isRead = "loaded client CA bundle"
	isBad  = "cannot load client CA bundle"
)

// folder is an Authenticator that watches a client CA file.
type folder struct {
	t    *testing.T
	path string
	log  told
	a    *Authenticator
}

func follow(t *testing.T, path string) *folder {
	t.Helper()
	f := &folder{t: t, path: path, log: make(told, 100)}
	var err error
	if f.a, err = New(Config{ClientCAFile: path, Log: slog.New(f.log)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.a.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return f
}

// believes checks that clients of yes are authenticated and clients of no are not.
func (f *folder) believes(yes, no *apiservertest.Authority) {
	f.t.Helper()
	if yes != nil {
		if _, err := f.a.Authenticate(request("", yes.Client("admin", nil, nil))); err != nil {
			f.t.Errorf("refused: %v", err)
		}
	}
	if no != nil {
		if user, err := f.a.Authenticate(request("", no.Client("admin", nil, nil))); err == nil {
			f.t.Errorf("believed: %v", user)
		}
	}
}

func (f *folder) replace(data []byte) {
	f.t.Helper()
	write(f.t, f.path+".new", data)
	if err := os.Rename(f.path+".new", f.path); err != nil {
		f.t.Fatal(err)
	}
}

func TestBundleIsFollowed(t *testing.T) {
	one, two := apiservertest.NewAuthority(t, "one"), apiservertest.NewAuthority(t, "two")
	path := filepath.Join(t.TempDir(), "ca.crt")
	write(t, path, one.PEM())
	f := follow(t, path)
	f.log.wait(t, isRead)
	f.believes(one, two)

	f.replace(two.PEM())
	f.log.wait(t, isRead)
	f.believes(two, one)
	if !f.a.ClientCAs().Equal(pool(t, two)) {
		t.Error("clients are told of another CA")
	}

	f.replace(append(one.PEM(), two.PEM()...))
	f.log.wait(t, isRead)
	f.believes(one, nil)
	f.believes(two, nil)

	// What cannot be used changes nothing.
	f.replace([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.log.wait(t, isBad)
	f.believes(one, nil)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.log.wait(t, isBad)
	f.believes(two, nil)

	f.replace(one.PEM())
	f.log.wait(t, isRead)
	f.believes(one, two)
}

func pool(t *testing.T, of *apiservertest.Authority) *x509.CertPool {
	t.Helper()
	p, err := cert.NewPoolFromBytes(of.PEM())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBundleThatComesLater(t *testing.T) {
	ca := apiservertest.NewAuthority(t, "kubernetes")
	root := t.TempDir()
	f := follow(t, filepath.Join(root, "etc", "pki", "ca.crt"))
	f.log.wait(t, isBad)
	f.believes(nil, ca)
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		t.Fatal(err)
	}
	f.replace(ca.PEM())
	f.log.wait(t, isRead)
	f.believes(ca, nil)

	// The folder is replaced by another.
	other := apiservertest.NewAuthority(t, "other")
	if err := os.Rename(filepath.Dir(f.path), filepath.Join(root, "old")); err != nil {
		t.Fatal(err)
	}
	f.log.wait(t, isBad)
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		t.Fatal(err)
	}
	f.replace(other.PEM())
	f.log.wait(t, isRead)
	f.believes(other, ca)
}

// TestBundleInAVolume: the file is a symbolic link into a directory that is swapped, as
// in a projected volume.
func TestBundleInAVolume(t *testing.T) {
	one, two := apiservertest.NewAuthority(t, "one"), apiservertest.NewAuthority(t, "two")
	dir := t.TempDir()
	swap := func(name string, data []byte) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "ca.crt"), data)
		if err := os.Symlink(name, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("..1", one.PEM())
	path := filepath.Join(dir, "ca.crt")
	if err := os.Symlink("..data/ca.crt", path); err != nil {
		t.Fatal(err)
	}
	f := follow(t, path)
	f.log.wait(t, isRead)
	f.believes(one, two)
	for i, next := range []*apiservertest.Authority{two, one, two} {
		swap("..next"+string(rune('a'+i)), next.PEM())
		f.log.wait(t, isRead)
		f.believes(next, nil)
	}
	f.believes(two, one)
	// The folder that the link now leads to is watched, not the one before.
	target := filepath.Join(dir, "..nextc", "ca.crt")
	write(t, target+".new", one.PEM())
	if err := os.Rename(target+".new", target); err != nil {
		t.Fatal(err)
	}
	f.log.wait(t, isRead)
	f.believes(one, two)
}

// TestBundleBeforeItIsFollowed: no request is rejected because Run has not started.
func TestBundleBeforeItIsFollowed(t *testing.T) {
	ca := apiservertest.NewAuthority(t, "kubernetes")
	a := newAuthenticator(t, ca, nil, nil)
	if a.ClientCAs() != nil {
		t.Error("the bundle was read by New")
	}
	if _, err := a.Authenticate(request("", ca.Client("admin", nil, nil))); err != nil {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	ca := apiservertest.NewAuthority(t, "kubernetes").PEM()
	withHeader := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte("x")})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	for name, tt := range map[string]struct {
		data string
		good bool
	}{
		"one":              {string(ca), true},
		"with text around": {"# CA\n" + string(ca) + "end", true},
		"with others":      {string(key) + string(withHeader) + string(ca), true},
		"empty":            {"", false},
		"no PEM":           {"hello", false},
		"only a key":       {string(key), false},
		"cut off":          {string(ca[:len(ca)/2]), false},
		"one bad of two":   {string(ca) + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})), false},
	} {
		if _, err := cert.NewPoolFromBytes([]byte(tt.data)); (err == nil) != tt.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBundleIsBounded(t *testing.T) {
	ca := apiservertest.NewAuthority(t, "kubernetes")
	a := newAuthenticator(t, ca, nil, nil)
	write(t, a.bundle.path, append(ca.PEM(), bytes.Repeat([]byte("\n"), maxBundle)...))
	if err := a.bundle.load(); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("error %v", err)
	}
}
