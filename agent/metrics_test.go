package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiclient"
	"github.com/tinylet/tinylet/agent/clock"
	"github.com/tinylet/tinylet/agent/identity"
	"github.com/tinylet/tinylet/agent/metric"
	"github.com/tinylet/tinylet/agent/registrar"
)

// scraped is what Prometheus reads of the agent's bytes, by direction, verb and
// resource.
func scraped(t *testing.T, p *parts) map[string]uint64 {
	t.Helper()
	var text bytes.Buffer
	if err := metric.Write(&text, p.metrics()...); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]uint64)
	for _, sample := range families["tinylet_api_bytes_total"].GetMetric() {
		labels := make(map[string]string)
		for _, l := range sample.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		out[fmt.Sprint(labels["direction"], " ", labels["verb"], " ", labels["resource"])] = uint64(sample.GetCounter().GetValue())
	}
	return out
}

func TestStatusAndMetricAgree(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`))
	}))
	defer s.Close()
	log := slog.New(slog.DiscardHandler)
	id, err := identity.New(identity.Config{Kubeconfig: "/none", PKI: t.TempDir(), NodeName: "n", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{metered: true, clock: clock.New(clock.Config{Log: log}), identity: id, registrar: registrar.New(registrar.Config{Log: log})}
	p := &parts{cluster: c}
	if told := c.told(); told.Sent != 0 || !told.Metered {
		t.Errorf("before anything was sent: %+v", told)
	}
	client, err := apiclient.New(apiclient.Config{Server: s.URL, Meter: &c.meter})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Reconnect()
	if err := client.Get(t.Context(), apiclient.Pods, "default", "a", &v1.Pod{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Create(t.Context(), apiclient.CoreEvents, "default", "", "", &v1.Event{}, nil); err != nil {
		t.Fatal(err)
	}
	samples, told := scraped(t, p), c.told()
	var names []string
	sums := make(map[string]uint64)
	for _, direction := range []string{"sent", "received"} {
		for _, of := range []string{"connection connection", "create events", "get pods"} {
			names = append(names, direction+" "+of)
			sums[direction] += samples[direction+" "+of]
		}
	}
	if len(samples) != len(names) {
		t.Errorf("samples %v, want %q", samples, names)
	}
	if diff := cmp.Diff(map[string]uint64{"sent": told.Sent, "received": told.Received}, sums); diff != "" {
		t.Errorf("sums (-status +metric):\n%s", diff)
	}
	if samples["received get pods"] != 56 || samples["sent create events"] < 20 || samples["sent connection connection"] < 200 {
		t.Errorf("samples %v", samples)
	}
}

func TestBoardAloneHasNoBytes(t *testing.T) {
	if got := (&parts{}).metrics(); len(got) != 0 {
		t.Errorf("families %v", got)
	}
}
