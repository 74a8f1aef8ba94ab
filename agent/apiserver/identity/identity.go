package identity

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/store/filewatch"
	"github.com/tinylet/tinylet/agent/wait"
)

// Clock reports whether the wall clock is plausible, so that certificate lifetimes can be
// checked.
type Clock interface {
	// Ready blocks until the clock is plausible, or ctx ends.
	Ready(ctx context.Context) error
	// Plausible reports whether the clock is plausible.
	Plausible() bool
	// Changed returns a channel that is closed when the clock is next set.
	Changed() <-chan struct{}
}

// Config configures an Identity. Kubeconfig, PKI, NodeName, HostIPs, Clock, NewClient, Events
// and Log are required.
type Config struct {
	// Kubeconfig is the path of the node's kubeconfig. The file need not exist yet.
	Kubeconfig string
	// BootstrapKubeconfig is the path of the kubeconfig whose credentials request a
	// certificate while the node has no usable one, at first or after one has expired;
	// "" means none. The file may appear at any time.
	BootstrapKubeconfig string
	// EnrolKubeconfig is the path of a kubeconfig that stays on the node. It is
	// used when the certificate has expired and there is no bootstrap kubeconfig,
	// or only one that the API server rejects; "" means none.
	EnrolKubeconfig string
	// PKI is the directory of the certificates.
	PKI string
	// NodeName is the name of the Node.
	NodeName string
	// Rotate renews the client certificate before it expires.
	Rotate bool
	// ServerTLSBootstrap requests the serving certificate from the cluster.
	ServerTLSBootstrap bool
	// ServingCert and ServingKey are the files of the serving certificate; both or
	// neither must be set.
	ServingCert, ServingKey string
	// HostIPs returns the node's IP addresses, for which a serving certificate is requested
	// from the cluster. It must not block.
	HostIPs func() []string
	// Clock checks the plausibility of the wall clock.
	Clock Clock
	// NewClient creates the clients.
	NewClient func(apiclient.Config) (*apiclient.Client, error)
	Events    *event.Recorder
	Log       *slog.Logger
	// UserAgent identifies the node in the logs of the API server.
	UserAgent string
}

// server is a client of the API server of one kubeconfig.
type server interface {
	apiclient.API
	Reconnect()
}

// Identity manages the node's credentials. Its methods may be called concurrently.
type Identity struct {
	config  Config
	client  store
	issuer  issuer
	serving *serving
	share   float64 // of renewal

	// Tests replace these.
	now     func() time.Time
	connect func(apiclient.Config) (server, *apiclient.Client, error)
	watch   func(context.Context, filewatch.Following)

	pair      atomic.Pointer[tls.Certificate]
	again     chan struct{} // one slot: read the files again
	moved     chan struct{} // one slot: the set of watched files changed
	ready     chan struct{} // closed when main is set
	fails     atomic.Uint64
	mu        sync.Mutex
	problem   string // of the files; see step.problem
	trouble   string // of the last attempt, if an operator can fix it; cleared by a success
	changed   string // what of the kubeconfig differs from in
	main      server
	given     *apiclient.Client
	enrolling *apiclient.Client // of the last request for the first credentials, nil once there are some
	in        *Kubeconfig       // of main
	extra     []string          // files that the kubeconfigs refer to
}

// New validates the configuration and returns an Identity. It reads no files and
// starts nothing.
func New(c Config) (*Identity, error) {
	switch {
	case c.Kubeconfig == "" || c.PKI == "" || c.NodeName == "":
		return nil, errors.New("identity: Kubeconfig, PKI and NodeName are required")
	case (c.ServingCert == "") != (c.ServingKey == ""):
		return nil, errors.New("identity: ServingCert and ServingKey must be set together")
	}
	// Symbolic links need absolute paths.
	for _, path := range []*string{&c.PKI, &c.Kubeconfig, &c.BootstrapKubeconfig, &c.EnrolKubeconfig} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("identity: make path %s absolute: %w", *path, err)
		}
		*path = abs
	}
	id := &Identity{
		config: c, client: store{dir: c.PKI, prefix: "kubelet-client"},
		now: time.Now, share: rand.Float64(), watch: filewatch.Follow,
		again: make(chan struct{}, 1), moved: make(chan struct{}, 1), ready: make(chan struct{}),
	}
	id.issuer = issuer{store: &id.client, log: c.Log, now: func() time.Time { return id.now() }, waits: id.setTrouble}
	id.connect = func(config apiclient.Config) (server, *apiclient.Client, error) {
		client, err := c.NewClient(config)
		return client, client, err
	}
	id.serving = newServing(id)
	return id, nil
}

// Client returns the client of the API server. It blocks until there is a usable
// kubeconfig, or ctx ends. It always returns the same client, which presents the current
// certificate. A later change of the kubeconfig's server, CA, proxy or token has no
// effect on it; Problem reports it.
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

// Current returns the client that Client returns, or nil while there is none.
func (id *Identity) Current() *apiclient.Client {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.given
}

// Recovered returns the client's channel that is closed when an outage ends; nil while
// there is no client, for which requests wait.
func (id *Identity) Recovered() <-chan struct{} {
	if client := id.Current(); client != nil {
		return client.Recovered()
	}
	return nil
}

// Contacted reports whether the API server has responded since the agent's start.
func (id *Identity) Contacted() bool {
	client := id.Current()
	if client == nil {
		return false
	}
	answered, _ := client.Contact()
	return !answered.IsZero()
}

// ServerAddresses returns the known addresses of the API server. Until there are credentials,
// they are those of the server that issues them. It does not block.
func (id *Identity) ServerAddresses() []netip.Addr {
	id.mu.Lock()
	client := cmp.Or(id.given, id.enrolling)
	id.mu.Unlock()
	if client == nil {
		return nil
	}
	return client.Addresses()
}

// server returns the client of the API server, nil while there is none.
func (id *Identity) server() server {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.main
}

// Problem returns what is wrong with the client credentials and how to fix it, or "". It
// does not cover the serving certificate.
func (id *Identity) Problem() string {
	id.mu.Lock()
	defer id.mu.Unlock()
	var all []string
	if id.changed != "" {
		all = append(all, fmt.Sprintf("kubeconfig %s changed its %s: restart tinylet to use it", id.config.Kubeconfig, id.changed))
	}
	for _, text := range []string{id.problem, id.trouble} {
		if text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// Stats holds the values for metrics.
type Stats struct {
	// ClientExpiry and ServingExpiry are when the certificates expire; zero means
	// that there is none.
	ClientExpiry, ServingExpiry time.Time
	// ClientFailures and ServingFailures count failed attempts to obtain, save or use
	// a certificate.
	ClientFailures, ServingFailures uint64
}

// Stats returns the expiry times of the certificates and the failure counts.
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

// Serving returns the function that selects the serving certificate for a TLS
// handshake. That function fails while there is no certificate and never blocks on
// the network.
func (id *Identity) Serving() func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return id.serving.certificate
}

// AddressesChanged reports that the result of HostIPs may have changed. It does not block.
func (id *Identity) AddressesChanged() { wait.Notify(id.serving.again) }

// Run manages the credentials until ctx ends. It returns the cause of ctx.
func (id *Identity) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { id.watchFiles(ctx) })
	wg.Go(func() { id.serving.run(ctx) })
	id.syncLoop(ctx)
	wg.Wait()
	return context.Cause(ctx)
}

// watchFiles makes syncLoop read the files when they are watched and after each change,
// until ctx ends. The files and their directories need not exist.
func (id *Identity) watchFiles(ctx context.Context) {
	id.watch(ctx, filewatch.Following{
		Paths: id.paths, Moved: id.moved, Changed: func() { wait.Notify(id.again) },
		Failed: func(err error) {
			id.config.Log.Warn("cannot watch credential files, polling instead", "interval", filewatch.PollInterval, "error", err)
		},
	})
}

// paths returns the files to watch.
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

func (id *Identity) readFiles() *credentialFiles {
	f := &credentialFiles{}
	var extra []string
	load := func(path string) (*Kubeconfig, error) {
		if path == "" {
			return nil, nil
		}
		k, err := Load(path)
		if k == nil {
			return nil, err
		}
		for _, file := range []string{k.caFile, k.CertFile, k.KeyFile, k.TokenFile} {
			if file != "" && file != id.client.current() && !slices.Contains(extra, file) {
				extra = append(extra, file)
			}
		}
		if err != nil {
			return nil, err
		}
		return k, nil
	}
	f.kubeconfig, f.kubeconfigErr = load(id.config.Kubeconfig)
	f.bootstrap, f.bootstrapErr = load(id.config.BootstrapKubeconfig)
	f.enrol, f.enrolErr = load(id.config.EnrolKubeconfig)
	id.follow(extra)
	if f.kubeconfig == nil || !f.kubeconfig.HasCertificate() {
		return f
	}
	// A certificate that was issued to a request of the node takes precedence over
	// the initial one that it replaces (pkg/kubelet/certificate:
	// NewKubeletClientCertificateManager).
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

// follow sets the files that the kubeconfigs refer to as further watched files.
func (id *Identity) follow(extra []string) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !slices.Equal(extra, id.extra) {
		id.extra = extra
		wait.Notify(id.moved)
	}
}

// sameFile reports whether two paths lead to the same file.
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

func (id *Identity) rules() *rules {
	c := &id.config
	return &rules{
		kubeconfig: c.Kubeconfig, bootstrap: c.BootstrapKubeconfig, enrol: c.EnrolKubeconfig,
		rotate: c.Rotate, plausible: c.Clock.Plausible(),
		due: func(leaf *x509.Certificate) time.Time { return renewal(leaf, id.share) },
	}
}

// present returns the certificate for a new connection, nil if there is none, and an
// error if it has expired.
func (id *Identity) present() (*tls.Certificate, error) {
	pair := id.pair.Load()
	if pair == nil {
		return nil, nil
	}
	if id.config.Clock.Plausible() && id.now().After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("client certificate expired at %s", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return pair, nil
}

var node = pod.Ref{}
