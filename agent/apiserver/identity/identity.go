package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// Clock judges the wall clock.
type Clock interface {
	// Ready blocks until certificates can be judged, or ctx ends.
	Ready(ctx context.Context) error
	// Plausible says that certificates can be judged.
	Plausible() bool
	// Jumped answers a channel that is closed when the clock is next set.
	Jumped() <-chan struct{}
}

// Config is what an Identity needs.
type Config struct {
	// Kubeconfig is where the node's kubeconfig is, or is to be.
	Kubeconfig string
	// BootstrapKubeconfig has the credentials that the first certificate is
	// asked for with, and any after one has expired; "" has none. The file
	// may come at any time.
	BootstrapKubeconfig string
	// EnrolKubeconfig is one that stays on a board, for when its certificate
	// has expired and there is no bootstrap kubeconfig, or only one that the
	// server no longer takes; "" has none.
	EnrolKubeconfig string
	// PKI is the folder of certificates.
	PKI string
	// NodeName is the node's name.
	NodeName string
	// Rotate renews the client certificate before it expires.
	Rotate bool
	// ServerTLSBootstrap asks the cluster for the serving certificate.
	ServerTLSBootstrap bool
	// ServingCert and ServingKey are files with the serving certificate, both
	// or neither.
	ServingCert, ServingKey string
	// Addresses are the node's, which a serving certificate from the cluster
	// is for. It must not block.
	Addresses func() ([]string, []net.IP)
	// Clock is the wall clock's guard.
	Clock Clock
	// NewClient makes the clients; nil is apiclient.New.
	NewClient func(apiclient.Config) (*apiclient.Client, error)
	// Events gets what happens to certificates; nil is the log alone.
	Events *event.Recorder
	Log    *slog.Logger
	// UserAgent names the node in the server's logs.
	UserAgent string
}

// server is the API server of one kubeconfig.
type server interface {
	signing
	Reconnect()
}

// Identity keeps the node's credentials. Its methods may be called at once.
type Identity struct {
	config  Config
	client  store
	issuer  issuer
	serving *serving
	share   float64 // of renewal

	// Tests replace these.
	now     func() time.Time
	connect func(apiclient.Config) (server, *apiclient.Client, error)
	watch   func(ctx context.Context, log *slog.Logger, paths func() []string, moved <-chan struct{}, changed chan<- struct{})

	pair    atomic.Pointer[tls.Certificate]
	again   chan struct{} // one slot: look at the files
	moved   chan struct{} // one slot: other files matter
	ready   chan struct{} // closed when main is there
	fails   atomic.Uint64
	mu      sync.Mutex
	problem string // what the files lack
	trouble string // what the last attempt failed with, if somebody can help
	main    server
	given   *apiclient.Client
	in      *Kubeconfig // what main was made of
	extra   []string    // files that the kubeconfig names
}

// New checks the configuration; nothing is read and nothing is started.
func New(c Config) (*Identity, error) {
	switch {
	case c.Kubeconfig == "" || c.PKI == "" || c.NodeName == "":
		return nil, errors.New("identity: a kubeconfig, a folder of certificates and a node's name are needed")
	case (c.ServingCert == "") != (c.ServingKey == ""):
		return nil, errors.New("identity: a serving certificate and its key go together, and one of the files is not named")
	}
	// Links need absolute paths, and so does who compares events with paths.
	for _, path := range []*string{&c.PKI, &c.Kubeconfig, &c.BootstrapKubeconfig, &c.EnrolKubeconfig} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("identity: path %s: %w", *path, err)
		}
		*path = abs
	}
	if c.NewClient == nil {
		c.NewClient = apiclient.New
	}
	if c.Events == nil {
		c.Events = event.NewRecorder(c.Log)
	}
	if c.Addresses == nil {
		c.Addresses = func() ([]string, []net.IP) { return nil, nil }
	}
	id := &Identity{
		config: c, client: store{dir: c.PKI, prefix: "kubelet-client"},
		now: time.Now, share: rand.Float64(), watch: watchFiles,
		again: make(chan struct{}, 1), moved: make(chan struct{}, 1), ready: make(chan struct{}),
	}
	id.issuer = issuer{store: &id.client, log: c.Log, now: func() time.Time { return id.now() }, waits: id.suffer}
	id.connect = func(config apiclient.Config) (server, *apiclient.Client, error) {
		client, err := c.NewClient(config)
		return client, client, err
	}
	id.serving = newServing(id)
	return id, nil
}

// Client blocks until the node has an API server and credentials for it, or
// ctx ends. It always answers the same client, which shows the certificate
// that is current.
func (id *Identity) Client(ctx context.Context) (*apiclient.Client, error) {
	select {
	case <-id.ready:
		id.mu.Lock()
		defer id.mu.Unlock()
		return id.given, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Current answers Client's client, or nil while there is none.
func (id *Identity) Current() *apiclient.Client {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.given
}

// Problem says what is wrong with the node's credentials and what somebody has
// to do, or "".
func (id *Identity) Problem() string {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.problem != "" && id.trouble != "" {
		return id.problem + "; " + id.trouble
	}
	return id.problem + id.trouble
}

// Stats are for metrics.
type Stats struct {
	// ClientExpiry and ServingExpiry are when the certificates expire, zero
	// without one.
	ClientExpiry, ServingExpiry time.Time
	// ClientFailures and ServingFailures count renewals that failed.
	ClientFailures, ServingFailures uint64
}

// Stats are how the certificates stand.
func (id *Identity) Stats() Stats {
	s := Stats{ClientFailures: id.fails.Load(), ServingFailures: id.serving.fails.Load()}
	if pair := id.pair.Load(); pair != nil {
		s.ClientExpiry = pair.Leaf.NotAfter
	}
	if pair := id.serving.pair.Load(); pair != nil {
		s.ServingExpiry = pair.Leaf.NotAfter
	}
	return s
}

// Serving answers how the node's own server gets its certificate for a
// handshake. It fails while there is none, and never blocks on the network.
func (id *Identity) Serving() func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return id.serving.certificate
}

// AddressesChanged says that Addresses may answer something else than before.
func (id *Identity) AddressesChanged() { nudge(id.serving.again) }

// Run keeps the credentials until ctx ends.
func (id *Identity) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { id.watch(ctx, id.config.Log, id.paths, id.moved, id.again) })
	wg.Go(func() { id.serving.run(ctx) })
	id.keep(ctx)
	wg.Wait()
	return context.Cause(ctx)
}

// paths are the files whose changes matter.
func (id *Identity) paths() []string {
	id.mu.Lock()
	defer id.mu.Unlock()
	paths := []string{id.config.Kubeconfig, id.client.current()}
	for _, path := range []string{id.config.BootstrapKubeconfig, id.config.EnrolKubeconfig} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return append(paths, id.extra...)
}

// look reads the files.
func (id *Identity) look() *found {
	f := &found{}
	f.kubeconfig, f.kubeconfigErr = Load(id.config.Kubeconfig)
	f.bootstrap, f.bootstrapErr = loadIf(id.config.BootstrapKubeconfig)
	f.enrol, f.enrolErr = loadIf(id.config.EnrolKubeconfig)
	if f.kubeconfig == nil {
		return f
	}
	id.follow(f.kubeconfig)
	if !f.kubeconfig.HasCertificate() {
		return f
	}
	// The certificate that the node has asked for comes before the one that
	// it was given at first, if that is what it renews
	// (pkg/kubelet/certificate: NewKubeletClientCertificateManager).
	f.pair, f.pairErr = f.kubeconfig.Certificate()
	f.foreign = !sameFile(f.kubeconfig.CertFile, id.client.current())
	if id.config.Rotate || !f.foreign {
		stored, err := id.client.load()
		if err == nil && (f.pairErr != nil || !f.foreign || id.now().Before(stored.Leaf.NotAfter)) {
			f.pair, f.pairErr, f.foreign = stored, nil, false
		}
	}
	return f
}

// follow has the files watched that the kubeconfig names.
func (id *Identity) follow(k *Kubeconfig) {
	var extra []string
	for _, path := range []string{k.CertFile, k.KeyFile} {
		if path != "" && path != id.client.current() {
			extra = append(extra, path)
		}
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if !slices.Equal(extra, id.extra) {
		id.extra = extra
		nudge(id.moved)
	}
}

// sameFile says that two paths lead to one file.
func sameFile(a, b string) bool {
	if a == b {
		return true
	}
	of, err := os.Stat(a)
	if err != nil {
		return false
	}
	with, err := os.Stat(b)
	return err == nil && os.SameFile(of, with)
}

func loadIf(path string) (*Kubeconfig, error) {
	if path == "" {
		return nil, nil
	}
	return Load(path)
}

// rules are those of now.
func (id *Identity) rules() *rules {
	c := &id.config
	return &rules{
		kubeconfig: c.Kubeconfig, bootstrap: c.BootstrapKubeconfig, enrol: c.EnrolKubeconfig,
		rotate: c.Rotate, plausible: c.Clock.Plausible(),
		due: func(leaf *x509.Certificate) time.Time { return renewal(leaf, id.share) },
	}
}

// present is the certificate for a new connection.
func (id *Identity) present() (*tls.Certificate, error) {
	pair := id.pair.Load()
	if pair == nil {
		return nil, nil
	}
	if id.config.Clock.Plausible() && id.now().After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("the client certificate expired at %s", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return pair, nil
}

// node is what events are of.
var node = pod.Ref{}

// drain empties a channel of one slot.
func drain(c <-chan struct{}) {
	select {
	case <-c:
	default: // it is empty
	}
}

// nudge fills a channel of one slot.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is full
	}
}
