package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

const bootstrapToken = "abcdef.0123456789abcdef"

// cluster is an API server that signs certificates according to its policy.
type cluster struct {
	t      *testing.T
	caCert *x509.Certificate
	caKey  *ecdsa.PrivateKey
	life   time.Duration
	age    time.Duration                                   // of a certificate when it is issued
	policy func(*certificatesv1.CertificateSigningRequest) // with the lock held; nil approves
	step   func(string)                                    // of requests; may abort the handler

	mu       sync.Mutex
	down     error // what direct requests fail with
	version  int
	requests map[string]*certificatesv1.CertificateSigningRequest
	made     []string // names, in order
	users    []string // who made them
	watchers map[chan *certificatesv1.CertificateSigningRequest]string
	lost     int // Reconnects of direct connections
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(20 * 365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &cluster{
		t: t, caCert: ca, caKey: key, life: 365 * 24 * time.Hour,
		requests: map[string]*certificatesv1.CertificateSigningRequest{},
		watchers: map[chan *certificatesv1.CertificateSigningRequest]string{},
	}
}

func (c *cluster) caPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.caCert.Raw})
}

// sign makes a certificate for a key.
func (c *cluster) sign(leaf *x509.Certificate, public any) []byte {
	leaf.SerialNumber = big.NewInt(time.Now().UnixNano())
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, leaf, c.caCert, public, c.caKey)
	if err != nil {
		c.t.Errorf("sign: %v", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// nodePair is a certificate that the cluster has issued, in one PEM file.
func (c *cluster) nodePair(name string, from, to time.Time) []byte {
	key, err := newKey()
	if err != nil {
		c.t.Fatal(err)
	}
	cert := c.sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
		NotBefore: from, NotAfter: to, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &key.PublicKey)
	data, err := encodeKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	return append(cert, data...)
}

// approve issues the certificate; the lock is held.
func (c *cluster) approve(r *certificatesv1.CertificateSigningRequest) {
	block, _ := pem.Decode(r.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		c.t.Errorf("request: %v", err)
		return
	}
	usage := x509.ExtKeyUsageClientAuth
	if r.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		usage = x509.ExtKeyUsageServerAuth
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue}}
	r.Status.Certificate = c.sign(&x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		NotBefore: time.Now().Add(-time.Second - c.age), NotAfter: time.Now().Add(c.life), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, request.PublicKey)
}

func deny(r *certificatesv1.CertificateSigningRequest) {
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateDenied, Status: v1.ConditionTrue, Reason: "Test", Message: "not you",
	}}
}

func ignore(*certificatesv1.CertificateSigningRequest) {}

// change changes a request later and notifies its watches; nil deletes it.
func (c *cluster) change(name string, with func(*certificatesv1.CertificateSigningRequest)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.requests[name].DeepCopy()
	c.version++
	r.ResourceVersion = fmt.Sprint(c.version)
	if with == nil {
		delete(c.requests, name)
		r.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	} else {
		with(r)
		c.requests[name] = r
	}
	for w, of := range c.watchers {
		if of == name {
			w <- r
		}
	}
}

// names returns the names of all requests ever created.
func (c *cluster) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.made...)
}

// askers returns the users that created them.
func (c *cluster) askers() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.users...)
}

// reconnects are those of direct connections.
func (c *cluster) reconnects() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

var csrs = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}

func (c *cluster) create(user string, r *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[r.Name] != nil {
		return nil, apierrors.NewAlreadyExists(csrs, r.Name)
	}
	r = r.DeepCopy()
	c.version++
	r.UID, r.ResourceVersion = types.UID(fmt.Sprint("uid-", c.version)), fmt.Sprint(c.version)
	r.TypeMeta = metav1.TypeMeta{Kind: "CertificateSigningRequest", APIVersion: "certificates.k8s.io/v1"}
	c.requests[r.Name] = r
	c.made = append(c.made, r.Name)
	c.users = append(c.users, user)
	created := r.DeepCopy()
	if c.policy != nil {
		c.policy(r)
	} else {
		c.approve(r)
	}
	return created, nil
}

func (c *cluster) get(name string) (*certificatesv1.CertificateSigningRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.requests[name]; r != nil {
		return r.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(csrs, name)
}

// subscribe returns the changes of a request, beginning with its current state.
func (c *cluster) subscribe(name string) (changes chan *certificatesv1.CertificateSigningRequest, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changes = make(chan *certificatesv1.CertificateSigningRequest, 16)
	if r := c.requests[name]; r != nil {
		changes <- r.DeepCopy()
	}
	c.watchers[changes] = name
	return changes, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, changes)
	}
}

func eventOf(r *certificatesv1.CertificateSigningRequest) watch.Event {
	kind := watch.Modified
	if r.DeletionTimestamp != nil {
		kind = watch.Deleted
	}
	return watch.Event{Type: kind, Object: r}
}

// direct is a client of the cluster without a network, for virtual time.
type direct struct {
	*cluster
	user string
}

func (c *cluster) outage() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

func (c *cluster) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = err
}

func (d direct) Get(_ context.Context, _ apiclient.Resource, _, name string, into runtime.Object) error {
	if err := d.outage(); err != nil {
		return err
	}
	r, err := d.get(name)
	if err == nil {
		r.DeepCopyInto(into.(*certificatesv1.CertificateSigningRequest))
	}
	return err
}

func (d direct) Create(_ context.Context, _ apiclient.Resource, _, _, _ string, object, into runtime.Object) error {
	if err := d.outage(); err != nil {
		return err
	}
	r, err := d.create(d.user, object.(*certificatesv1.CertificateSigningRequest))
	if err == nil {
		r.DeepCopyInto(into.(*certificatesv1.CertificateSigningRequest))
	}
	return err
}

func (d direct) Watch(ctx context.Context, _ apiclient.Resource, _ string, o metav1.ListOptions) (watch.Interface, error) {
	if err := d.outage(); err != nil {
		return nil, err
	}
	changes, end := d.subscribe(strings.TrimPrefix(o.FieldSelector, "metadata.name="))
	out := make(chan watch.Event)
	w := watch.NewProxyWatcher(out)
	go func() {
		defer close(out)
		defer end()
		for {
			select {
			case r := <-changes:
				select {
				case out <- eventOf(r):
				case <-w.StopChan():
					return
				}
			case <-w.StopChan():
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

func (d direct) Reconnect() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost++
}

// serve starts an HTTPS server for the cluster.
func (c *cluster) serve() *httptest.Server {
	key, err := newKey()
	if err != nil {
		c.t.Fatal(err)
	}
	cert := c.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &key.PublicKey)
	pair, err := pairOf(cert, key)
	if err != nil {
		c.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.caCert)
	s := httptest.NewUnstartedServer(http.HandlerFunc(c.handle))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots, Certificates: []tls.Certificate{*pair}}
	s.StartTLS()
	c.t.Cleanup(s.Close)
	return s
}

func (c *cluster) handle(w http.ResponseWriter, r *http.Request) {
	user := ""
	if len(r.TLS.PeerCertificates) > 0 {
		user = r.TLS.PeerCertificates[0].Subject.CommonName
	} else if r.Header.Get("Authorization") == "Bearer "+bootstrapToken {
		user = "system:bootstrap:abcdef"
	}
	c.at("ask " + r.Method)
	var object any
	var err error
	name := strings.TrimPrefix(r.URL.Path, "/apis/certificates.k8s.io/v1/certificatesigningrequests")
	switch {
	case user == "":
		err = apierrors.NewUnauthorized("Unauthorized")
	case r.URL.Path == "/version":
		object = map[string]string{"user": user}
	case r.URL.Query().Get("watch") == "true":
		c.stream(w, r)
		return
	case r.Method == http.MethodPost:
		var body []byte
		request := &certificatesv1.CertificateSigningRequest{}
		if body, err = io.ReadAll(r.Body); err == nil {
			err = decode(body, request)
		}
		if err == nil {
			object, err = c.create(user, request)
		}
	default:
		object, err = c.get(strings.TrimPrefix(name, "/"))
	}
	c.at("answer " + r.Method)
	code := http.StatusOK
	if status, ok := err.(apierrors.APIStatus); ok { //nolint:errorlint // what create and get answer
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		object, code = s, int(s.Code)
	} else if err != nil {
		c.t.Errorf("request: %v", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func (c *cluster) at(step string) {
	if c.step != nil {
		c.step(step)
	}
}

func (c *cluster) stream(w http.ResponseWriter, r *http.Request) {
	changes, end := c.subscribe(strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="))
	defer end()
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.(http.Flusher).Flush()
	for {
		select {
		case change := <-changes:
			event := eventOf(change)
			_ = json.NewEncoder(w).Encode(map[string]any{"type": event.Type, "object": event.Object})
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func decode(data []byte, into runtime.Object) error {
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		return err
	}
	_, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(data, nil, into)
	return err
}
