package listwatch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// TestByTheClient uses the real client, which counts its bytes by resource.
func TestByTheClient(t *testing.T) {
	asked := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked <- strings.Join([]string{r.URL.Path, q.Get("labelSelector"), q.Get("limit"), q.Get("resourceVersion"), q.Get("allowWatchBookmarks")}, " ")
		w.Header().Set("Content-Type", "application/json")
		const slice = `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":%q,"namespace":"ns","resourceVersion":%q},"addressType":"IPv4"}`
		if q.Get("watch") == "" {
			_, _ = fmt.Fprintf(w, `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"5"},"items":[`+slice+`]}`, "a", "3")
			return
		}
		_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":`+slice+`}`, "b", "6")
		_, _ = io.WriteString(w, "\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	var meter apiclient.Meter
	client, err := apiclient.New(apiclient.Config{Server: s.URL, Meter: &meter})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Reconnect()
	changed := make(chan struct{}, 10)
	f, err := New(Config[string]{
		API: client, Resource: apiclient.EndpointSlices, List: func() runtime.Object { return &discoveryv1.EndpointSliceList{} }, Labels: "!x",
		Keep: func(o runtime.Object) (string, bool) {
			slice, ok := o.(*discoveryv1.EndpointSlice)
			return string(slice.AddressType), ok
		},
		Same: func(a, b string) bool { return a == b }, Changed: func() { changed <- struct{}{} }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	<-changed
	<-changed
	f.View(func(all map[Key]string) {
		if len(all) != 2 || all[Key{"ns", "a"}] != "IPv4" || all[Key{"ns", "b"}] != "IPv4" {
			t.Errorf("known: %v", all)
		}
	})
	cancel()
	<-ended
	const path = "/apis/discovery.k8s.io/v1/endpointslices !x "
	for _, want := range []string{path + "100  ", path + " 5 true"} {
		if got := <-asked; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
	counted := func(verb string) bool {
		return slices.ContainsFunc(meter.Traffic(), func(r apiclient.Traffic) bool {
			return r.Verb == verb && r.Resource == "endpointslices" && r.Received > 0
		})
	}
	if !counted("list") || !counted("watch") {
		t.Errorf("counted %+v", meter.Traffic())
	}
}
