package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

const bootstrapToken = "abcdef.0123456789abcdef"

// cluster is an API server that signs certificates according to its policy.
type cluster struct {
	*apiservertest.Server
	t      *testing.T
	ca     *apiservertest.Authority
	life   time.Duration
	age    time.Duration                                   // of a certificate when it is issued
	policy func(*certificatesv1.CertificateSigningRequest) // nil approves
	step   func(string) error                              // of requests; an error cuts the connection

	mu    sync.Mutex
	down  error    // of all requests
	made  []string // names of requests for certificates, in order
	users []string // who made them
	lost  int      // Reconnects of direct connections
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Server: apiservertest.New(), t: t, ca: apiservertest.NewAuthority(t, "kubernetes"), life: 365 * 24 * time.Hour}
	c.Grant(bootstrapToken, "system:bootstrap:abcdef")
	c.SetFaults(apiservertest.Faults{Before: c.before, After: c.after})
	return c
}

func (c *cluster) before(_ context.Context, call apiservertest.Call) error {
	if call.User == apiservertest.Anonymous {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.step != nil && c.down == nil {
		return c.step("ask " + call.Verb)
	}
	return c.down
}

func (c *cluster) after(_ context.Context, call apiservertest.Call) error {
	if call.Verb == "create" {
		c.mu.Lock()
		c.made, c.users = append(c.made, call.Name), append(c.users, call.User)
		policy := c.policy
		c.mu.Unlock()
		if policy == nil {
			policy = c.approve
		}
		c.change(call.Name, policy)
	}
	if c.step != nil {
		return c.step("answer " + call.Verb)
	}
	return nil
}

// nodePair is a certificate that the cluster has issued, in one PEM file.
func (c *cluster) nodePair(name string, from, to time.Time) []byte {
	pair := c.ca.Client("system:node:"+name, []string{"system:nodes"}, func(leaf *x509.Certificate) { leaf.NotBefore, leaf.NotAfter = from, to })
	key, err := encodeKey(pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		c.t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw}), key...)
}

// approve issues the certificate.
func (c *cluster) approve(r *certificatesv1.CertificateSigningRequest) {
	c.ca.Approve(r, time.Now().Add(-time.Second-c.age), time.Now().Add(c.life))
}

func deny(r *certificatesv1.CertificateSigningRequest) {
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateDenied, Status: v1.ConditionTrue, Reason: "Test", Message: "not you",
	}}
}

func ignore(*certificatesv1.CertificateSigningRequest) {}

// change changes a request later; nil deletes it.
func (c *cluster) change(name string, with func(*certificatesv1.CertificateSigningRequest)) {
	if with == nil {
		c.Remove(apiclient.CertificateSigningRequests, "", name)
		return
	}
	apiservertest.Update(c.Server, "", name, with)
}

// names returns the names of all requests ever created.
func (c *cluster) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made)
}

// askers returns the users that created them.
func (c *cluster) askers() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.users)
}

// reconnects are those of direct connections.
func (c *cluster) reconnects() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// fail makes all requests fail; nil makes them succeed.
func (c *cluster) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = err
}

// direct is a client of the cluster without a network, for virtual time.
type direct struct {
	apiservertest.Client
	cluster *cluster
}

func (c *cluster) direct(user string) direct { return direct{c.As(user), c} }

func (d direct) Reconnect() {
	d.cluster.mu.Lock()
	defer d.cluster.mu.Unlock()
	d.cluster.lost++
}

// serve starts an HTTPS server for the cluster and returns its URL.
func (c *cluster) serve() string {
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(c.ca.PEM())
	return c.Serve(c.t, c.ca.Server(), clients).URL
}
