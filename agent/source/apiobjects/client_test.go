package apiobjects

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// TestByTheClient asks a server by the real client, which encodes and selects.
func TestByTheClient(t *testing.T) {
	api := newServer()
	api.Put(configMap("a", "1"))
	changed := make(chan string, 1)
	o, err := New(Config{API: api.Dial(t, apiclient.Config{}), Log: testLog(nil), Changed: func(kind, namespace, name string) {
		changed <- key{Kind: kind, Namespace: namespace, Name: name}.String()
	}})
	if err != nil {
		t.Fatal(err)
	}
	running(t, o)
	o.SetReferencingPods([]*v1.Pod{podWith("pod", "a")})
	if _, err := o.ConfigMap(t.Context(), "ns", "a"); err != nil {
		t.Fatal(err)
	}
	api.Put(configMap("a", "2"))
	if got := <-changed; got != "ConfigMap ns/a" {
		t.Errorf("told of %s", got)
	}
	if m, err := o.ConfigMap(t.Context(), "ns", "a"); err != nil || m.Data["a"] != "2" || m.ManagedFields != nil {
		t.Errorf("%+v, %v", m, err)
	}
	text, expires, err := o.Token(t.Context(), podWith("pod"), "x", time.Hour)
	if text != "token 1" || time.Until(expires) < 59*time.Minute || err != nil {
		t.Errorf("%q, %v, %v", text, expires, err)
	}
	made := api.Made()
	if want := []string{"list configmaps/ns/a", "watch configmaps/ns/a", "create serviceaccounts/ns/account/token"}; !slices.Equal(made, want) {
		t.Fatalf("asked %q, want %q", made, want)
	}
	if list, watch := api.Calls()[0].List, api.Calls()[1].List; list.ResourceVersion != "" || watch.ResourceVersion != "2" {
		t.Errorf("list from %q, watch from %q", list.ResourceVersion, watch.ResourceVersion)
	}
	// The request is of its own group, though its resource is of the core's.
	if request := api.request(); request == nil || !slices.Equal(request.Spec.Audiences, []string{"x"}) {
		t.Errorf("sent %+v", request)
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
	s.Put(configMap("a", "1"))
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
