package apiservertest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// Anonymous is the user of an HTTP request without credentials.
const Anonymous = "system:anonymous"

// Serve serves HTTPS with a certificate until the test ends. It verifies client
// certificates by clients.
func (s *Server) Serve(t testing.TB, cert tls.Certificate, clients *x509.CertPool) *httptest.Server {
	t.Helper()
	h := httptest.NewUnstartedServer(s)
	h.EnableHTTP2 = true
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	h.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients, Certificates: []tls.Certificate{cert}}
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

// Dial serves HTTPS until the test ends, and returns a client with a configuration that
// needs neither a server nor a CA.
func (s *Server) Dial(t testing.TB, config apiclient.Config) *apiclient.Client {
	t.Helper()
	ca := NewAuthority(t, "kubernetes")
	config.Server, config.CA = s.Serve(t, ca.Server(), nil).URL, ca.PEM()
	c, err := apiclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Reconnect)
	return c
}

// ServeHTTP serves a request of a user, who is the subject of the client certificate
// or the user of a bearer token (see Grant).
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, err := s.authenticate(r)
	var object runtime.Object
	if err == nil {
		object, err = s.request(w, r, s.As(user))
	}
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		failure := status.Status()
		if failure.Details != nil && failure.Details.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(failure.Details.RetryAfterSeconds)))
		}
		respond(w, int(failure.Code), &failure)
	case err != nil:
		panic(http.ErrAbortHandler)
	case object != nil:
		respond(w, http.StatusOK, object)
	}
}

func (s *Server) authenticate(r *http.Request) (string, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName, nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Anonymous, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	user, ok := s.tokens[token]
	if !ok {
		return "", apierrors.NewUnauthorized("Unauthorized")
	}
	return user.Username, nil
}

// target is the target of a request.
type target struct {
	resource                     apiclient.Resource
	namespace, name, subresource string
}

// targetOf returns the target of a path, false if the server does not serve it.
func targetOf(url string) (t target, ok bool) {
	parts := append(strings.Split(strings.Trim(url, "/"), "/"), "", "", "", "", "", "")
	group := schema.GroupVersion{Version: parts[1]}
	if parts = parts[2:]; strings.HasPrefix(url, "/apis/") {
		group.Group, group.Version, parts = group.Version, parts[0], parts[1:]
	} else if !strings.HasPrefix(url, "/api/") {
		return t, false
	}
	if parts[0] == "namespaces" && parts[2] != "" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.name, t.subresource = parts[1], parts[2]
	for r, o := range kinds {
		if r.String() == parts[0] && kindOf(o).GroupVersion() == group {
			t.resource = r
			return t, true
		}
	}
	return t, false
}

// request serves a request. Its result is nil if it was a watch.
func (s *Server) request(w http.ResponseWriter, r *http.Request, c Client) (runtime.Object, error) {
	ctx := r.Context()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	t, ok := targetOf(r.URL.Path)
	if !ok {
		call := Call{Verb: strings.ToLower(r.Method), Name: r.URL.Path, User: c.user}
		return &metav1.Status{Status: metav1.StatusSuccess}, s.serve(ctx, call, nil, func(Call) (runtime.Object, error) {
			if r.URL.Path == "/version" {
				return nil, nil
			}
			return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "404 page not found", 0, true)
		})
	}
	into := kinds[t.resource].DeepCopyObject()
	var options metav1.ListOptions
	switch r.Method {
	case http.MethodGet:
		if t.name != "" {
			return into, c.Get(ctx, t.resource, t.namespace, t.name, into)
		}
		if err := runtime.NewParameterCodec(scheme()).DecodeParameters(r.URL.Query(), schema.GroupVersion{Version: "v1"}, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if options.Watch {
			return nil, s.stream(w, r, c, t, options)
		}
		kind := kindOf(into)
		kind.Kind += "List"
		if into, err = scheme().New(kind); err != nil {
			return nil, err
		}
		return into, c.List(ctx, t.resource, t.namespace, options, into)
	case http.MethodPost:
		object, _, err := decoder().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if t.subresource != "" {
			into = object.DeepCopyObject()
		}
		return into, c.Create(ctx, t.resource, t.namespace, t.name, t.subresource, object, into)
	case http.MethodPatch:
		return into, c.Patch(ctx, t.resource, t.namespace, t.name, t.subresource, types.PatchType(r.Header.Get("Content-Type")), body, into)
	case http.MethodDelete:
		var options metav1.DeleteOptions
		if _, _, err := decoder().Decode(body, nil, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return &metav1.Status{Status: metav1.StatusSuccess}, c.Delete(ctx, t.resource, t.namespace, t.name, options)
	}
	return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: t.resource.String()}, r.Method)
}

func decoder() runtime.Decoder { return serializer.NewCodecFactory(scheme()).UniversalDeserializer() }

// stream writes the events of a watch until it ends.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, c Client, t target, options metav1.ListOptions) error {
	events, err := c.Watch(r.Context(), t.resource, t.namespace, options)
	if err != nil {
		return err
	}
	defer events.Stop()
	w.Header().Set("Content-Type", "application/json;stream=watch")
	for out := json.NewEncoder(w); ; {
		_ = http.NewResponseController(w).Flush() // a broken connection ends the context
		e, open := <-events.ResultChan()
		if !open {
			return nil
		}
		_ = out.Encode(map[string]any{"type": e.Type, "object": withKind(e.Object)})
	}
}

func respond(w http.ResponseWriter, code int, object runtime.Object) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(withKind(object)) // the client may be gone
}

// withKind sets the kind and the API version, which objects in memory do not have.
func withKind(o runtime.Object) runtime.Object {
	o.GetObjectKind().SetGroupVersionKind(kindOf(o))
	return o
}
