//go:build cluster

package addons

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nodeExporter reads the node's own figures, and those of its file systems.
func (l lab) nodeExporter() {
	l.images(program(nodeExporterImage, "bin/node_exporter", built(l.T, "node_exporter")))
	l.c.Apply(l.T, manifest(l.T, "node-exporter.yaml"))
	l.running("monitoring", "app.kubernetes.io/name=node-exporter", 1)
	address := l.c.BoardNet(l.T, name).Address.Addr().String()
	for _, want := range []string{
		"node_cpu_seconds_total{", "node_memory_MemAvailable_bytes ", "node_load1 ", `node_network_receive_bytes_total{device="eth0"}`,
		`node_uname_info{`, `mountpoint="/"`, "node_disk_reads_completed_total{", "node_pressure_memory_waiting_seconds_total ",
	} {
		l.until("node-exporter serves "+want, func() string {
			if got := l.c.Ask(l.T, "http://"+address+":9100/metrics"); !strings.Contains(got, want) {
				return fmt.Sprintf("it is not in %d bytes that begin with %.80q", len(got), got)
			}
			return ""
		})
	}
}

// metricsServer has kubectl top read the node and pods by way of a
// metrics-server that runs on the node.
func (l lab) metricsServer() {
	l.images(program(metricsServerImage, "metrics-server", built(l.T, "metrics-server")))
	l.c.Apply(l.T, manifest(l.T, "metrics-server.yaml"))
	l.running("kube-system", "k8s-app=metrics-server", 1)
	for _, q := range []struct {
		want string
		args []string
	}{
		{name, []string{"top", "node", "--no-headers"}},
		{"web-", []string{"top", "pod", "--no-headers"}},
		{"kube-proxy-", []string{"top", "pod", "--containers", "--no-headers", "--namespace=kube-system"}},
	} {
		l.until("kubectl "+strings.Join(q.args, " "), func() string {
			got, err := l.c.Kubectl(l.Context(), q.args...)
			if err != nil {
				return err.Error()
			}
			if !strings.Contains(got, q.want) || !strings.Contains(got, "Mi") {
				return got
			}
			l.Logf("%s", got)
			return ""
		})
	}
}

// scrape is what kube-prometheus configures for kubelets. Nodes are found by
// their role in place of a Service's endpoints, which its operator keeps.
const scrape = `global: {scrape_interval: 15s, scrape_timeout: 14s}
scrape_configs:
%s
- job_name: node-exporter
  static_configs: [{targets: ["%s:9100"]}]
`

const job = `- job_name: kubelet%[1]s
  honor_labels: true
  honor_timestamps: %[2]v
  scheme: https
  metrics_path: %[1]s
  authorization: {credentials_file: %[3]s}
  tls_config: {ca_file: %[4]s}
  kubernetes_sd_configs:
  - {role: node, api_server: "%[5]s", authorization: {credentials_file: %[3]s}, tls_config: {ca_file: %[4]s}}
  relabel_configs:
  - {source_labels: [__meta_kubernetes_node_name], target_label: node}
  - {target_label: job, replacement: kubelet}
  - {target_label: namespace, replacement: kube-system}
  - {target_label: service, replacement: kubelet}
  - {target_label: endpoint, replacement: https-metrics}
  - {source_labels: [__metrics_path__], target_label: metrics_path}
  metric_relabel_configs:
  - {source_labels: [__name__], regex: container_(network_tcp_usage_total|network_udp_usage_total|tasks_state|cpu_load_average_10s), action: drop}
  - {source_labels: [__name__, pod, namespace], regex: (container_spec_.*|container_file_descriptors|container_sockets|container_threads_max|container_threads|container_start_time_seconds|container_last_seen);;, action: drop}
`

const prometheusAddress = ":9090"

// prometheus scrapes the node, and has data for each metric that the mixin
// selects.
func (l lab) prometheus() {
	data, err := os.ReadFile("mixin.yaml")
	if err != nil {
		l.Fatal(err)
	}
	selections, err := ParseSelections(data)
	if err != nil {
		l.Fatal(err)
	}
	l.sh("mkdir -p /var/lib/data")
	l.c.Apply(l.T, manifest(l.T, "prometheus.yaml")+"---\n"+manifest(l.T, "work.yaml"))
	l.startPrometheus()
	l.running("default", "app=worker", 1)
	l.until("a pod over its limit of local storage is evicted", func() string {
		if got := l.c.Must(l.T, "get", "pod", "greedy", "--output=jsonpath={.status.reason}"); got != "Evicted" {
			return got
		}
		return ""
	})
	l.until("each path is scraped", func() string {
		if n := l.series(`up{job="kubelet"} == 1`); n != 4 {
			return fmt.Sprintf("%d targets are up", n)
		}
		return ""
	})
	began := time.Now()
	for _, s := range selections {
		l.T.Run(s.String(), func(t *testing.T) {
			l := l
			l.T = t
			// Series appear when what they count has happened.
			problem := s.Judge(l.series(s.Query()))
			for problem != "" && s.Absent == "" && time.Since(began) < patience/4 {
				time.Sleep(time.Second)
				problem = s.Judge(l.series(s.Query()))
			}
			if problem != "" {
				t.Errorf("%s: %s", s.Query(), problem)
			}
			if s.Absent != "" {
				t.Logf("absent: %s", s.Absent)
			}
		})
	}
}

// startPrometheus starts Prometheus beside the control plane. It ends with the
// test.
func (l lab) startPrometheus() {
	l.Helper()
	dir := l.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	token := l.c.Must(l.T, "create", "token", "prometheus-k8s", "--namespace=monitoring", "--duration=24h")
	var jobs strings.Builder
	for _, path := range []string{"/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource"} {
		fmt.Fprintf(&jobs, job, path, path != "/metrics/cadvisor", at("token"), at("ca.crt"), l.c.Server())
	}
	address := l.c.BoardNet(l.T, name).Address.Addr().String()
	for file, text := range map[string]string{
		"token": token, "ca.crt": string(l.c.CA()), "prometheus.yml": fmt.Sprintf(scrape, jobs.String(), address),
	} {
		if err := os.WriteFile(at(file), []byte(text), 0o600); err != nil {
			l.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(l.ArtifactDir(), "prometheus.log"))
	if err != nil {
		l.Fatal(err)
	}
	// It ends before its folder goes.
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.Context()))
	cmd := l.c.Beside(l.T, ctx, builtPath(l.T, "prometheus"), "--config.file="+at("prometheus.yml"),
		"--storage.tsdb.path="+at("data"), "--web.listen-address="+l.c.HostAddress()+prometheusAddress)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		l.Fatalf("%v; make addons-programs builds it", err)
	}
	t := l.T
	l.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("end of prometheus.log:\n%s", text[max(0, len(text)-4000):])
		}
	})
	l.until("Prometheus is ready", func() string {
		if got := l.c.Ask(l.T, "http://"+l.c.HostAddress()+prometheusAddress+"/-/ready"); !strings.Contains(got, "is Ready") {
			return got
		}
		return ""
	})
}

// series asks Prometheus how many series a query finds now.
func (l lab) series(query string) int {
	l.Helper()
	text := l.c.Ask(l.T, "http://"+l.c.HostAddress()+prometheusAddress+"/api/v1/query?query="+url.QueryEscape(query))
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Status != "success" {
		l.Fatalf("query %s: %v: %s", query, err, text)
	}
	return len(answer.Data.Result)
}
