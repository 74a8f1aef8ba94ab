package apiclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// server starts a test server with HTTP/2 and TLS.
func server(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handle)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func clientOf(t *testing.T, s *httptest.Server, change func(*Config)) *Client {
	t.Helper()
	config := Config{
		Server: s.URL, UserAgent: "tinylet/test",
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
	}
	if change != nil {
		change(&config)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Reconnect)
	return c
}

// answer writes an object in protobuf.
func answer(t *testing.T, w http.ResponseWriter, code int, object runtime.Object) {
	t.Helper()
	codecs := newCodecs()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("no protobuf")
	}
	data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, schema.GroupVersion{Version: "v1"}), object)
	if err != nil {
		t.Errorf("encode: %v", err)
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(code)
	_, _ = w.Write(data)
}

func podNamed(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
}

func TestRequests(t *testing.T) {
	var got atomic.Value
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("Content-Type"), r.Header.Get("User-Agent"), r.Header.Get("Authorization")}, " "))
		if r.ProtoMajor != 2 {
			t.Errorf("HTTP/%d", r.ProtoMajor)
		}
		if accept := r.Header.Get("Accept"); accept != "application/vnd.kubernetes.protobuf,application/json" {
			t.Errorf("accepts %q", accept)
		}
		if r.Method == http.MethodPost && !strings.HasPrefix(string(body), "k8s\x00") {
			t.Errorf("the body is no protobuf: %q", body)
		}
		if strings.Contains(r.URL.Path, "absent") {
			status := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "absent").Status()
			answer(t, w, http.StatusNotFound, &status)
			return
		}
		answer(t, w, http.StatusOK, podNamed("a"))
	})
	c := clientOf(t, s, func(c *Config) { c.Token = func() (string, error) { return "secret", nil } })
	ctx := t.Context()
	var pod v1.Pod
	for _, row := range []struct {
		name string
		do   func() error
		want string
	}{
		{"get", func() error { return c.Get(ctx, Pods, "default", "a", &pod) }, "GET /api/v1/namespaces/default/pods/a  "},
		{"get what has no namespace", func() error { return c.Get(ctx, RuntimeClasses, "", "x", nil) }, "GET /apis/node.k8s.io/v1/runtimeclasses/x  "},
		{"list", func() error {
			return c.List(ctx, Pods, "", metav1.ListOptions{FieldSelector: "spec.nodeName=n", ResourceVersion: "0"}, nil)
		}, "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn&resourceVersion=0  "},
		{"create", func() error { return c.Create(ctx, Pods, "default", "", "", podNamed("a"), &pod) }, "POST /api/v1/namespaces/default/pods application/vnd.kubernetes.protobuf "},
		{"create in a subresource", func() error { return c.Create(ctx, Pods, "default", "a", "eviction", podNamed("a"), nil) }, "POST /api/v1/namespaces/default/pods/a/eviction application/vnd.kubernetes.protobuf "},
		{"patch", func() error {
			return c.Patch(ctx, Pods, "default", "a", "status", types.StrategicMergePatchType, []byte("{}"), &pod)
		}, "PATCH /api/v1/namespaces/default/pods/a/status application/strategic-merge-patch+json "},
		{"delete", func() error { return c.Delete(ctx, Pods, "default", "a", metav1.DeleteOptions{}) }, "DELETE /api/v1/namespaces/default/pods/a application/vnd.kubernetes.protobuf "},
		{"delete what has no type", func() error { return c.Delete(ctx, CSINodes, "", "n", metav1.DeleteOptions{}) }, "DELETE /apis/storage.k8s.io/v1/csinodes/n application/vnd.kubernetes.protobuf "},
	} {
		t.Run(row.name, func(t *testing.T) {
			pod = v1.Pod{}
			if err := row.do(); err != nil {
				t.Fatal(err)
			}
			if want := row.want + "tinylet/test Bearer secret"; got.Load() != want {
				t.Errorf("request %q, want %q", got.Load(), want)
			}
		})
	}
	err := c.Get(ctx, Pods, "default", "absent", &pod)
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "get pods/default/absent: ") {
		t.Errorf("error of what is not there: %v", err)
	}
	if _, err := c.Raw(ctx, "/version"); err != nil || !strings.HasPrefix(got.Load().(string), "GET /version ") {
		t.Errorf("raw: %v, %q", err, got.Load())
	}
	if at, err := c.Contact(); time.Since(at) > time.Minute || err != nil {
		t.Errorf("contact %v, %v", at, err)
	}
}

func TestWatch(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "true" {
			t.Errorf("query %q", r.URL.RawQuery)
		}
		w.Header().Set("Content-Type", "application/json;stream=watch")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c := clientOf(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := c.Watch(ctx, Pods, "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*v1.Pod).Name != "a" {
		t.Errorf("event %v", e)
	}
	cancel()
	if e, open := <-w.ResultChan(); open && e.Type != watch.Error {
		t.Errorf("event %v after the end", e)
	}
}

func TestWaitsAsTheServerAsks(t *testing.T) {
	var asked atomic.Int32
	s := server(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answer(t, w, http.StatusOK, podNamed("a"))
	})
	if err := clientOf(t, s, nil).Get(t.Context(), Pods, "default", "a", nil); err != nil || asked.Load() != 2 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}

func TestStalledAnswer(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_, _ = io.WriteString(w, `{"kind":`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c := clientOf(t, s, nil)
	c.transport.stall = 100 * time.Millisecond
	if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err == nil || !strings.Contains(err.Error(), ErrStalled.Error()) {
		t.Errorf("error %v, want that the answer stalled", err)
	}
}

// TestStalledRefusal has a server that refuses a watch and then sends no body.
func TestStalledRefusal(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(http.StatusForbidden)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c := clientOf(t, s, nil)
	c.transport.stall = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Watch(ctx, Pods, "", metav1.ListOptions{}); err == nil || ctx.Err() != nil {
		t.Errorf("error %v, the caller's context: %v", err, ctx.Err())
	}
}

// closing records that a body was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// TestNoToken has a token that cannot be read: no request is sent.
func TestNoToken(t *testing.T) {
	none := errors.New("no token")
	c, err := New(Config{Server: "https://127.0.0.1:1", Token: func() (string, error) { return "", none }})
	if err != nil {
		t.Fatal(err)
	}
	body := &closing{Reader: strings.NewReader("x")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://127.0.0.1:1", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.transport.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	if _, last := c.Contact(); !errors.Is(err, none) || !body.closed || !errors.Is(last, none) {
		t.Errorf("error %v, body closed: %t, contact %v", err, body.closed, last)
	}
}

func TestGarbage(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"text": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hotel login") },
		"empty protobuf": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = io.WriteString(w, "k8s\x00\xff\xff\xff")
		},
		"another kind": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			_, _ = io.WriteString(w, `{"kind":"Deployment","apiVersion":"apps/v1"}`)
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := clientOf(t, server(t, handle), nil).Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestReconnectShowsTheNewCertificate(t *testing.T) {
	var shown atomic.Value
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		shown.Store(name)
		answer(t, w, http.StatusOK, podNamed("a"))
	})
	name := "old"
	c := clientOf(t, s, func(c *Config) {
		c.Certificate = func() (*tls.Certificate, error) {
			if name == "" {
				return nil, nil
			}
			return certificate(t, name), nil
		}
	})
	for _, step := range []struct {
		name, want string
		reconnect  bool
	}{{"old", "old", false}, {"new", "old", false}, {"new", "new", true}, {"", "nobody", true}} {
		name = step.name
		if step.reconnect {
			c.Reconnect()
		}
		if err := c.Get(t.Context(), Pods, "default", "a", nil); err != nil {
			t.Fatal(err)
		}
		if shown.Load() != step.want {
			t.Errorf("showed %q, want %q", shown.Load(), step.want)
		}
	}
}

// certificate returns a self-signed certificate.
func certificate(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestReadyHoldsConnectionsBack(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, podNamed("a")) })
	ready := make(chan struct{})
	c := clientOf(t, s, func(c *Config) {
		c.Ready = func(ctx context.Context) error {
			select {
			case <-ready:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Get(ctx, Pods, "default", "a", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline's", err)
	}
	close(ready)
	if err := c.Get(t.Context(), Pods, "default", "a", nil); err != nil {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for address, good := range map[string]bool{
		"https://10.0.0.1:6443": true, "https://[::1]:6443/path": true, "http://127.0.0.1:8080": true, "http://localhost": true,
		"http://10.0.0.1": false, "10.0.0.1:6443": false, "": false, "https://u:p@10.0.0.1": false, "ftp://10.0.0.1": false, "https://": false,
	} {
		if _, err := New(Config{Server: address}); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := New(Config{Server: "https://x", CA: []byte("no")}); err == nil {
		t.Error("a CA without certificates")
	}
}
