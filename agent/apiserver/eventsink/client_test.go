package eventsink

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// TestOnTheWire uses the real client.
func TestOnTheWire(t *testing.T) {
	got := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(body)
		w.WriteHeader(http.StatusCreated)
	}))
	defer s.Close()
	client, err := apiclient.New(apiclient.Config{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Reconnect()
	events := event.NewRecorder(slog.New(slog.DiscardHandler))
	sink, err := New(Config{API: client, Watch: events.Watch, NodeName: "n", Coalesce: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- sink.Run(ctx) }()
	events.Normal(web, "Pulled", "an image")
	if text := <-got; !strings.HasPrefix(text, "POST /api/v1/namespaces/shop/events application/vnd.kubernetes.protobuf k8s\x00") ||
		!strings.Contains(text, "an image") || !strings.Contains(text, "kubelet") {
		t.Errorf("request %q", text)
	}
	events.Normal(web, "Pulled", "an image")
	if text := <-got; !strings.HasPrefix(text, "PATCH /api/v1/namespaces/shop/events/web.") ||
		!strings.Contains(text, ` application/merge-patch+json {"count":2,"lastTimestamp":"`) {
		t.Errorf("request %q", text)
	}
	cancel()
	<-ended
}
