package listwatch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

// TestByTheClient uses the real client, which counts its bytes by resource.
func TestByTheClient(t *testing.T) {
	api := apiservertest.New()
	api.Put(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, AddressType: "IPv4"})
	var meter apiclient.Meter
	client := api.Dial(t, apiclient.Config{Meter: &meter})
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
	api.Put(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}, AddressType: "IPv4"})
	<-changed
	f.View(func(all map[Key]string) {
		if len(all) != 2 || all[Key{"ns", "a"}] != "IPv4" || all[Key{"ns", "b"}] != "IPv4" {
			t.Errorf("known: %v", all)
		}
	})
	cancel()
	<-ended
	if made := api.Made(); !slices.Equal(made, []string{"list endpointslices", "watch endpointslices"}) {
		t.Fatalf("asked %q", made)
	}
	for i, want := range []string{"!x 100  false", "!x 0 2 true"} {
		o := api.Calls()[i].List
		if got := fmt.Sprint(o.LabelSelector, " ", o.Limit, " ", o.ResourceVersion, " ", o.AllowWatchBookmarks); got != want {
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
