//go:build cluster

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	// Version is the control plane's.
	Version = "v1.36.3"
	// startTime bounds each wait for a server, on a machine that is busy.
	startTime = 3 * time.Minute
	// endTime bounds the end of a cluster.
	endTime = time.Minute
)

// hostAddress is the control plane's address on the boards' network.
var hostAddress = netip.MustParsePrefix("10.77.0.1/24")

// Options change a cluster. The zero value is what kubeadm sets up.
type Options struct {
	// More flags of the servers, after those of the cluster: the last one of
	// a kind wins.
	APIServerArgs, ControllerManagerArgs []string
}

// Cluster is a control plane that runs. Its methods may be called
// concurrently, but for StopAPIServer and StartAPIServer. Those that take a
// test fail it when they cannot do what they say.
type Cluster struct {
	ns      *namespace
	dir     string // keys, kubeconfigs and what etcd keeps
	logs    string
	options Options
	client  *http.Client
	ca      []byte
	ready   time.Time // when the API server was first ready

	mu      sync.Mutex
	servers map[string]*process
	boards  map[string]int // number of each board by its name
	starts  []span         // of the API server, until it was ready
}

// Start starts a control plane that answers /readyz, has the objects that
// kubeadm init makes for nodes that join, and takes pods. It ends with the
// test. The servers' logs and the audit log are the test's artifacts
// (go test -artifacts).
func Start(t *testing.T, o Options) *Cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a cluster needs root: it makes a network namespace")
	}
	// Folders first: they are removed after the cluster's end.
	c := &Cluster{
		dir: t.TempDir(), logs: t.ArtifactDir(), options: o,
		servers: map[string]*process{}, boards: map[string]int{},
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*startTime)
	defer cancel()
	t.Cleanup(func() { c.end(t) })
	if err := c.start(ctx); err != nil {
		t.Fatalf("start cluster: %v", err)
	}
	t.Logf("the API server is ready after %.1f s, the control plane is up after %.1f s, in namespace %s",
		c.ready.Sub(began).Seconds(), time.Since(began).Seconds(), c.ns.name)
	return c
}

func (c *Cluster) start(ctx context.Context) error {
	if _, err := c.program("etcd"); err != nil {
		return err
	}
	ns, keep, err := newNamespace(ctx)
	if err != nil {
		return err
	}
	c.ns = ns
	err = c.run("etcd", c.etcdArgs()...)
	keep()
	if err != nil {
		return err
	}
	if err := c.makeKeys(ctx); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	c.ready = time.Now()
	for name, args := range map[string][]string{
		"kube-controller-manager": c.controllerManagerArgs(), "kube-scheduler": c.schedulerArgs(),
	} {
		if err := c.run(name, args...); err != nil {
			return err
		}
	}
	if err := c.makeObjects(ctx); err != nil {
		return err
	}
	// A pod is refused until the controllers have made its service account.
	return c.waitOK(ctx, "kube-controller-manager", "/api/v1/namespaces/default/serviceaccounts/default")
}

// run starts a server by its name.
func (c *Cluster) run(name string, args ...string) error {
	argv, err := c.command(name, args...)
	if err != nil {
		return err
	}
	p, err := c.ns.start(name, filepath.Join(c.logs, name+".log"), argv...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[name] = p
	return nil
}

func (c *Cluster) server(name string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[name]
}

// end ends all servers and removes the network.
func (c *Cluster) end(t *testing.T) {
	if c.ns == nil {
		return
	}
	for _, name := range []string{"metrics-server", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"} {
		p := c.server(name)
		if p == nil {
			continue
		}
		if p.ended() {
			t.Errorf("%s has ended by itself: %v", name, p.err)
		}
		p.kill()
		if t.Failed() {
			t.Logf("end of %s.log:\n%s", name, p.tail())
		}
	}
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), endTime)
	defer cancel()
	if err := c.ns.remove(ctx); err != nil {
		t.Error(err)
	}
}

// startAPIServer starts the API server and waits until it is ready.
func (c *Cluster) startAPIServer(ctx context.Context) error {
	start := span{from: time.Now()}
	if err := c.run("kube-apiserver", c.apiServerArgs()...); err != nil {
		return err
	}
	if err := c.waitOK(ctx, "kube-apiserver", "/readyz"); err != nil {
		return err
	}
	start.to = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts = append(c.starts, start)
	return nil
}

// Refused returns what nodes and bootstrap tokens were refused with 403, each
// a request that a node must not make. Those that the API server took before it
// was ready do not count: it judges nodes by pods and roles that it has not
// read yet.
func (c *Cluster) Refused(t *testing.T) []Event {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(forbidden(c.AuditLog(t)), func(e Event) bool {
		return slices.ContainsFunc(c.starts, func(s span) bool { return s.has(e.Received) })
	})
}

// span is a time.
type span struct{ from, to time.Time }

func (s span) has(at time.Time) bool { return !at.Before(s.from) && !at.After(s.to) }

// StopAPIServer kills the API server, as a power cut would.
func (c *Cluster) StopAPIServer(t *testing.T) {
	t.Helper()
	p := c.server("kube-apiserver")
	if p == nil {
		t.Fatal("stop the API server: it does not run")
	}
	c.mu.Lock()
	delete(c.servers, "kube-apiserver")
	c.mu.Unlock()
	if p.ended() {
		t.Errorf("kube-apiserver has ended by itself: %v", p.err)
	}
	p.kill()
}

// StartAPIServer starts the API server again and waits until it is ready.
func (c *Cluster) StartAPIServer(t *testing.T) {
	t.Helper()
	if c.server("kube-apiserver") != nil {
		t.Fatal("start the API server: it runs")
	}
	if err := c.startAPIServer(t.Context()); err != nil {
		t.Fatalf("start the API server: %v", err)
	}
}

// waitOK waits until a path of the API answers with 200. It fails when the
// server that it waits for ends.
func (c *Cluster) waitOK(ctx context.Context, server, path string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	p := c.server(server)
	for {
		err := c.getOK(ctx, path)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("wait for %s: it ended: %w", server, errors.Join(p.err, err))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", server, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *Cluster) getOK(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Server()+path, nil)
	if err != nil {
		return err
	}
	res, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", path, res.Status)
	}
	return nil
}
