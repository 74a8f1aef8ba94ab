package apiclient

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
)

func told(t *testing.T, m *Meter) string {
	t.Helper()
	var text strings.Builder
	out := metrics.NewStream(&text)
	m.WriteMetrics(out)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if problems := metricstest.Problems([]byte(text.String())); len(problems) > 0 {
		t.Errorf("%q in\n%s", problems, text.String())
	}
	return text.String()
}

func TestRequestsAreTold(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
		case strings.HasSuffix(r.URL.Path, "/missing"):
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`))
		}
	}))
	defer s.Close()
	meter := new(Meter)
	if text := told(t, meter); strings.Contains(text, "rest_client") || !strings.Contains(text, `direction="sent",verb="connection"`) {
		t.Errorf("before any request:\n%s", text)
	}
	client, err := New(Config{Server: s.URL, Meter: meter})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := client.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Get(t.Context(), Pods, "default", "missing", &v1.Pod{}); err == nil {
		t.Fatal("found what is missing")
	}
	if err := client.Create(t.Context(), CoreEvents, "default", "", "", &v1.Event{}, nil); err != nil {
		t.Fatal(err)
	}
	w, err := client.Watch(t.Context(), Pods, "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	client.Reconnect()
	s.Close()
	if err := client.Create(t.Context(), CoreEvents, "default", "", "", &v1.Event{}, nil); err == nil {
		t.Fatal("a server that is gone answers")
	}
	text, host := told(t, meter), strings.TrimPrefix(s.URL, "http://")
	for _, want := range []string{
		`rest_client_requests_total{code="200",host="HOST",method="GET"} 3`, // the watch is one
		`rest_client_requests_total{code="200",host="HOST",method="POST"} 1`,
		`rest_client_requests_total{code="404",host="HOST",method="GET"} 1`,
		`rest_client_requests_total{code="<error>",host="HOST",method="POST"} 1`,
		`rest_client_request_duration_seconds_count{host="HOST",verb="GET"} 3`,
		`rest_client_request_duration_seconds_count{host="HOST",verb="POST"} 2`,
		`rest_client_request_duration_seconds_bucket{host="HOST",verb="GET",le="60"} 3`,
		`tinylet_api_bytes_total{direction="received",verb="get",resource="pods"} 112`,
	} {
		if !strings.Contains(text, strings.ReplaceAll(want, "HOST", host)+"\n") {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A token that cannot be read fails the request, which counts.
func TestRequestWithoutTokenIsTold(t *testing.T) {
	meter := new(Meter)
	client, err := New(Config{Server: "http://127.0.0.1:1", Meter: meter, Token: func() (string, error) { return "", errNoToken }})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err == nil {
		t.Fatal("no error")
	}
	if text := told(t, meter); !strings.Contains(text, `rest_client_requests_total{code="<error>",host="127.0.0.1:1",method="GET"} 1`) {
		t.Errorf("text\n%s", text)
	}
}

var errNoToken = http.ErrNoCookie // any error does

func TestMeterIsToldWhileItCounts(t *testing.T) {
	meter := new(Meter)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for i := range 100 {
				counter, counted := meter.of(purpose{"get", "pods"})
				counter.sent.Add(1)
				e := &exchange{counted: counted, method: "GET", host: "h", begun: time.Now()}
				e.answered(200 + i%3)
				e.over()
			}
		})
		wg.Go(func() {
			for range 20 {
				_ = told(t, meter)
			}
		})
	}
	wg.Wait()
	if text := told(t, meter); !strings.Contains(text, `_duration_seconds_count{host="h",verb="GET"} 300`) {
		t.Errorf("text\n%s", text)
	}
}
