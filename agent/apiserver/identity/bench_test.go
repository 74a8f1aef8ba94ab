package identity

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/store/filewatch"
)

var errDone = errors.New("done")

// wall is a clock that a test judges.
type wall struct {
	wrong  atomic.Bool
	mu     sync.Mutex
	jumped chan struct{}
}

func (w *wall) Plausible() bool { return !w.wrong.Load() }

func (w *wall) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jumped == nil {
		w.jumped = make(chan struct{})
	}
	return w.jumped
}

func (w *wall) jump() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jumped != nil {
		close(w.jumped)
	}
	w.jumped = make(chan struct{})
}

func (w *wall) Ready(ctx context.Context) error {
	for {
		jumped := w.Changed()
		if w.Plausible() {
			return nil
		}
		select {
		case <-jumped:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// logged is a log that several goroutines write.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// board is a node's files and the Identity that uses them.
type board struct {
	t       *testing.T
	cluster *cluster
	dir     string
	server  string
	clock   wall
	log     logged
	// adjust changes the configuration of the next start.
	adjust func(*Config)
	// virtual has no network and no inotify.
	virtual bool
	ahead   atomic.Int64 // of virtual time
	before  func(step, path string) error
}

func newBoard(t *testing.T, c *cluster, virtual bool) *board {
	t.Helper()
	b := &board{t: t, cluster: c, dir: t.TempDir(), virtual: virtual, server: "https://127.0.0.1:6443"}
	if !virtual {
		b.server = c.serve()
	}
	return b
}

func (b *board) path(name string) string { return filepath.Join(b.dir, name) }

func (b *board) write(name string, data []byte) {
	b.t.Helper()
	path := b.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// kubeconfig writes a kubeconfig of the cluster.
func (b *board) kubeconfig(name string, change func(*Kubeconfig)) {
	b.t.Helper()
	k := &Kubeconfig{Server: b.server, CA: b.cluster.ca.PEM()}
	change(k)
	if err := k.Write(b.path(name)); err != nil {
		b.t.Fatal(err)
	}
}

func withToken(k *Kubeconfig) { k.Token = bootstrapToken }

func (b *board) withCurrent(k *Kubeconfig) {
	k.CertFile = b.path("pki/kubelet-client-current.pem")
	k.KeyFile = k.CertFile
}

// current puts a certificate where the node's is, as kubeadm would.
func (b *board) current(from, to time.Time) {
	b.t.Helper()
	b.write("pki/kubelet-client-old.pem", b.cluster.nodePair("a", from, to))
	if err := os.Symlink(b.path("pki/kubelet-client-old.pem"), b.path("pki/kubelet-client-current.pem")); err != nil {
		b.t.Fatal(err)
	}
	b.kubeconfig("kubelet.conf", b.withCurrent)
}

// start runs an identity; stop ends it and waits for it.
func (b *board) start() (id *Identity, stop func()) {
	b.t.Helper()
	config := Config{
		Kubeconfig: b.path("kubelet.conf"), BootstrapKubeconfig: b.path("bootstrap-kubelet.conf"), PKI: b.path("pki"),
		NodeName: "a", Rotate: true, HostIPs: func() []string { return nil }, Clock: &b.clock, NewClient: apiclient.New,
		Log: slog.New(slog.NewTextHandler(&b.log, nil)), UserAgent: "tinylet/test",
	}
	config.Events = event.NewRecorder(config.Log)
	if b.adjust != nil {
		b.adjust(&config)
	}
	id, err := New(config)
	if err != nil {
		b.t.Fatal(err)
	}
	id.client.disk.before, id.serving.store.disk.before = b.before, nil
	if b.virtual {
		id.now = func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
		id.watch = func(ctx context.Context, f filewatch.Following) {
			f.Changed()
			<-ctx.Done()
		}
		id.connect = func(c apiclient.Config) (server, *apiclient.Client, error) {
			user := "token"
			if c.Token == nil {
				user = "node"
			}
			return b.cluster.direct(user), nil, nil
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(b.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- id.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel(errDone)
		if err := <-ended; !errors.Is(err, errDone) {
			b.t.Errorf("Run ended with %v", err)
		}
	})
	b.t.Cleanup(stop)
	return id, stop
}

// soon polls in real time until a condition holds.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it does not happen: %s", what)
		}
	}
}
