package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/identity"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
	"github.com/tinylet/tinylet/agent/pod"
)

// scraped is what Prometheus reads of the agent's bytes, by direction, verb and
// resource.
func scraped(t *testing.T, c *cluster) map[string]uint64 {
	t.Helper()
	text := metricstest.Render(t, metrics.NewStream, c.meter.WriteMetrics)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
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
	a := everything(t, true)
	c := a.cluster
	if state := a.registration.state.State(); state.Sent != 0 || !state.Metered {
		t.Errorf("before anything was sent: %+v", state)
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
	samples, state := scraped(t, c), a.registration.state.State()
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
	if diff := cmp.Diff(map[string]uint64{"sent": state.Sent, "received": state.Received}, sums); diff != "" {
		t.Errorf("sums (-status +metric):\n%s", diff)
	}
	if samples["received get pods"] != 56 || samples["sent create events"] < 20 || samples["sent connection connection"] < 200 {
		t.Errorf("samples %v", samples)
	}
}

// upstreams are the rules that the kubelet's own names break.
var upstreams = []string{
	"kubelet_evictions: is a counter, but its name does not end in _total",
	"kubelet_certificate_manager_client_expiration_renew_errors: is a counter, but its name does not end in _total",
	"kubelet_server_expiration_renew_errors: is a counter, but its name does not end in _total",
}

// whole is all that an agent tells, held against the rules.
func whole(t *testing.T, p *agent, known ...string) string {
	t.Helper()
	var text bytes.Buffer
	if err := p.writeMetrics(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	if problems := metricstest.Problems(text.Bytes(), known...); len(problems) > 0 {
		t.Errorf("%q in\n%s", problems, text.Bytes())
	}
	return text.String()
}

// tellingRuntime counts calls, as the driver for CRI does.
type tellingRuntime struct{ *fake.Runtime }

func (tellingRuntime) WriteMetrics(out *metrics.Stream) {
	out.Family(metrics.KindCounter, "kubelet_runtime_operations_total", "Calls.")
	out.Sample(7)
}

func TestMetricsOfABoardAlone(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		web := shell(t, "web", "Always", "sleep infinity")
		web.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		job := shell(t, "job", "Never", "sleep 5; exit 0", "sleep 5; exit 1") // long enough to be seen
		lost := shell(t, "lost", "Always", "sleep infinity")
		lost.Spec.Containers[0].Image = "localhost/none:1"
		lost.Spec.InitContainers = []v1.Container{{Name: "init", Image: busybox, Command: []string{"sh", "-c", "exit 0"}}}
		l.want(web, job, lost)
		l.start()
		l.settle(time.Minute)
		text := whole(t, l.agent)
		metricstest.WantLines(t, text,
			"kubelet_node_name{node=\"board\"} 1\n",
			"kubelet_running_pods 2\n",
			"kubelet_running_containers{container_state=\"exited\"} 3\n",
			"kubelet_running_containers{container_state=\"running\"} 1\n",
			"kubelet_desired_pods{static=\"true\"} 3\n",
			"kubelet_active_pods{static=\"true\"} 2\n",
			"kubelet_pod_worker_start_duration_seconds_count 3\n",
			"kubelet_pod_start_duration_seconds_count 2\n",
			"kubelet_pod_start_duration_seconds_bucket{le=\"0.5\"} 2\n",
			"kubelet_pod_start_duration_seconds_bucket{le=\"3600\"} 2\n",
			"kubelet_pod_worker_duration_seconds_count{operation_type=\"create\"} 3\n",
			"kubelet_pod_worker_duration_seconds_count{operation_type=\"terminated\"} 1\n",
			"kubelet_started_pods_total 3\n",
			"kubelet_started_pods_errors_total 0\n",
			"kubelet_started_containers_total{container_type=\"init_container\"} 1\n",
			"kubelet_started_containers_errors_total{container_type=\"container\",code=\"ErrImagePull\"} ",
			"kubelet_pleg_relist_duration_seconds_count ",
			"kubelet_pleg_last_seen_seconds 9466",
			"storage_operation_duration_seconds_count{migrated=\"false\",operation_name=\"volume_mount\",status=\"success\",volume_plugin=\"kubernetes.io/empty-dir\"} 2\n", // before the sandbox and before the container
			"volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\",state=\"actual_state_of_world\"} 1\n",
			"kubernetes_build_info{", "process_cpu_seconds_total ",
		)
		for _, not := range []string{"certificate", "rest_client", "tinylet_api", "mirror", "runtime_operations", "evictions"} {
			if strings.Contains(text, not) {
				t.Errorf("a board alone tells of %s", not)
			}
		}
		l.runtime.Inject("RunPodSandbox", fake.Fault{Err: errors.New("no network"), Times: 1})
		l.want(web, job, lost, shell(t, "late", "Always", "sleep infinity"))
		l.settle(time.Minute)
		metricstest.WantLines(t, whole(t, l.agent), "kubelet_started_pods_total 5\n", "kubelet_started_pods_errors_total 1\n")

		// What ran is not said to be started again by the next agent.
		l.kill()
		l.start()
		l.settle(time.Minute)
		metricstest.WantLines(t, whole(t, l.agent), "kubelet_pod_start_duration_seconds_count 0\n", "kubelet_started_pods_total 0\n", "kubelet_running_pods 3\n")
	})
}

func TestRuntimeIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p, err := assemble(environment{cfg: l.cfg, runtime: tellingRuntime{l.runtime}, log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		metricstest.WantLines(t, whole(t, p), "kubelet_runtime_operations_total 7\n")
	})
}

func TestMetricsWithACluster(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p, err := assemble(environment{cfg: l.cfg, runtime: l.runtime, log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		id, err := identity.New(identity.Config{Kubeconfig: "/none", PKI: t.TempDir(), NodeName: "n", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		p.cluster = &cluster{identity: id}
		metricstest.WantLines(t, whole(t, p, upstreams[1:]...), "kubelet_mirror_pods 0\n", "kubelet_certificate_manager_client_ttl_seconds +Inf\n",
			"tinylet_api_bytes_total{direction=\"sent\",verb=\"connection\",resource=\"connection\"} 0\n")
	})
}

func TestMetricsEndWithTheReader(t *testing.T) {
	p := &agent{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.writeMetrics(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// BenchmarkMetrics is one scrape of a node with 30 pods.
func BenchmarkMetrics(b *testing.B) {
	kubelet, tinylet := config.Default()
	dir := b.TempDir()
	cfg := &config.Config{Kubelet: kubelet, Tinylet: tinylet, NodeName: "board", Paths: config.Paths{Root: dir}}
	p, err := assemble(environment{cfg: cfg, runtime: fake.New(fake.Config{}), log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 30 {
		uid := types.UID(fmt.Sprint("uid", i))
		p.statuses.Set(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}}, v1.PodStatus{Phase: v1.PodRunning}, pod.Sandbox{})
	}
	var size int
	b.ReportAllocs()
	for b.Loop() {
		var text counter
		if err := p.writeMetrics(b.Context(), &text); err != nil {
			b.Fatal(err)
		}
		size = int(text)
	}
	b.ReportMetric(float64(size), "B/text")
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
