package apiobjects

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// TestByTheClient asks a server by the real client, which encodes and selects.
func TestByTheClient(t *testing.T) {
	asked := make(chan string, 10)
	tokens := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked <- r.Method + " " + r.URL.Path + " " + q.Get("fieldSelector") + " " + q.Get("resourceVersion")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			tokens <- string(body)
			_, _ = io.WriteString(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{"audiences":["x"],"expirationSeconds":600},"status":{"token":"secret","expirationTimestamp":"2100-01-01T00:00:00Z"}}`)
		case q.Get("watch") == "":
			_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a","namespace":"ns","resourceVersion":"3"},"data":{"a":"1"}}]}`)
		default:
			object, _ := json.Marshal(configMap("a", "2"))
			_, _ = fmt.Fprintf(w, `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1",%s}`, object[1:])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	client, err := apiclient.New(apiclient.Config{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Reconnect()
	changed := make(chan string, 1)
	o, err := New(Config{API: client, Log: testLog(nil), Changed: func(kind, namespace, name string) {
		changed <- key{kind, namespace, name}.String()
	}})
	if err != nil {
		t.Fatal(err)
	}
	running(t, o)
	o.SetReferencingPods([]*v1.Pod{podWith("pod", "a")})
	if _, err := o.ConfigMap(t.Context(), "ns", "a"); err != nil {
		t.Fatal(err)
	}
	if got := <-changed; got != "ConfigMap ns/a" {
		t.Errorf("told of %s", got)
	}
	if m, err := o.ConfigMap(t.Context(), "ns", "a"); err != nil || m.Data["a"] != "2" || m.ManagedFields != nil {
		t.Errorf("%+v, %v", m, err)
	}
	text, expires, err := o.Token(t.Context(), podWith("pod"), "x", time.Hour)
	if text != "secret" || expires.UTC().Year() != 2100 || err != nil {
		t.Errorf("%q, %v, %v", text, expires, err)
	}
	for _, want := range []string{
		"GET /api/v1/namespaces/ns/configmaps metadata.name=a ",
		"GET /api/v1/namespaces/ns/configmaps metadata.name=a 5",
		"POST /api/v1/namespaces/ns/serviceaccounts/account/token  ",
	} {
		if got := <-asked; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
	// The request is of its own group, though its resource is of the core's.
	if body := <-tokens; !strings.Contains(body, "\x18authentication.k8s.io/v1\x12\fTokenRequest") {
		t.Errorf("sent %q", body)
	}
}

// running runs Objects until the test ends.
func running(t testing.TB, o *Objects) {
	t.Helper()
	ended := make(chan struct{})
	ctx := t.Context()
	go func() {
		defer close(ended)
		_ = o.Run(ctx)
	}()
	t.Cleanup(func() { <-ended })
}

// fromMemory are reads that nobody has to ask the server for.
func fromMemory(t testing.TB) map[string]func() error {
	s := newServer()
	o, err := New(Config{API: s, Log: testLog(nil)})
	if err != nil {
		t.Fatal(err)
	}
	running(t, o)
	l := &lab{server: s, Objects: o}
	l.stock()
	s.put("configmaps", configMap("a", "1"))
	p := podOf("pod")
	p.Spec.Volumes = append(p.Spec.Volumes, podWith("x", "a").Spec.Volumes...)
	o.SetReferencingPods([]*v1.Pod{p})
	ctx := t.Context()
	reads := map[string]func() error{
		"ConfigMap": func() error { _, err := o.ConfigMap(ctx, "ns", "a"); return err },
		"Token":     func() error { _, _, err := o.Token(ctx, p, "", time.Hour); return err },
		"Claim":     func() error { _, err := o.PersistentVolumeClaim(ctx, "ns", "claim"); return err },
		"Volume":    func() error { _, err := o.PersistentVolume(ctx, "volume"); return err },
		"Class":     func() error { _, err := o.RuntimeClass(ctx, "class"); return err },
		"Services":  func() error { _, err := o.Services(ctx, "ns"); return err },
		"Bundle": func() error {
			_, err := o.TrustBundle(ctx, p.Spec.Volumes[1].Projected.Sources[1].ClusterTrustBundle)
			return err
		},
	}
	for name, read := range reads {
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	return reads
}

func TestReadsAllocateNothing(t *testing.T) {
	for name, read := range fromMemory(t) {
		if n := testing.AllocsPerRun(100, func() { _ = read() }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for name, read := range fromMemory(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
