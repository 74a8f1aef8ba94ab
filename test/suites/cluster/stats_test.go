//go:build cluster

package cluster

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tinylet/tinylet/agent/metrics/metricstest"
)

// parsed reads metrics as Prometheus does.
func (l lab) parsed(text string) map[string]*dto.MetricFamily {
	l.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text + "\n")) // kubectl.go trims it
	if err != nil {
		l.Fatal(err)
	}
	return families
}

// lint holds metrics against promtool's rules. Upstream's own families that
// break them do so here too.
func (l lab) lint(path, text string) {
	l.Helper()
	for _, problem := range metricstest.Problems([]byte(text+"\n"), knownProblems[path]...) {
		l.Errorf("%s: %s", path, problem)
	}
}

// knownProblems are those of the names that upstream has.
var knownProblems = map[string][]string{"metrics": {
	"kubelet_certificate_manager_client_expiration_renew_errors: is a counter, but its name does not end in _total",
	"kubelet_server_expiration_renew_errors: is a counter, but its name does not end in _total",
}}

// scraped is what metrics-server keeps of one scrape of one thing
// (pkg/scraper/client/resource/decode.go and pkg/storage of metrics-server
// 0.8).
type scraped struct {
	cpu, memory float64
	at          time.Time
}

// scrape reads /metrics/resource by metrics-server's rules: of a pod nothing
// is taken if one of its containers has no CPU time or no memory.
func (l lab) scrape() (node scraped, pods map[string]map[string]scraped) {
	l.Helper()
	families := l.parsed(l.c.Must(l.T, "get", "--raw", "/api/v1/nodes/"+name+"/proxy/metrics/resource"))
	each := func(family string, take func(labels map[string]string, value float64, at time.Time)) {
		for _, m := range families[family].GetMetric() {
			labels := map[string]string{}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			value := m.GetGauge().GetValue()
			if m.Counter != nil {
				value = m.GetCounter().GetValue()
			}
			take(labels, value, time.UnixMilli(m.GetTimestampMs()))
		}
	}
	each("node_cpu_usage_seconds_total", func(_ map[string]string, v float64, at time.Time) { node.cpu, node.at = v, at })
	each("node_memory_working_set_bytes", func(_ map[string]string, v float64, _ time.Time) { node.memory = v })
	pods = map[string]map[string]scraped{}
	of := func(labels map[string]string, change func(*scraped)) {
		pod := labels["namespace"] + "/" + labels["pod"]
		if pods[pod] == nil {
			pods[pod] = map[string]scraped{}
		}
		u := pods[pod][labels["container"]]
		change(&u)
		pods[pod][labels["container"]] = u
	}
	each("container_cpu_usage_seconds_total", func(labels map[string]string, v float64, at time.Time) {
		of(labels, func(u *scraped) { u.cpu, u.at = v, at })
	})
	each("container_memory_working_set_bytes", func(labels map[string]string, v float64, _ time.Time) {
		of(labels, func(u *scraped) { u.memory = v })
	})
	for pod, containers := range pods {
		for _, u := range containers {
			if u.cpu == 0 || u.memory == 0 {
				delete(pods, pod)
			}
		}
	}
	return node, pods
}

// top has what kubectl top makes of two scrapes.
func (l lab) top() {
	node, pods := l.scrape()
	time.Sleep(15 * time.Second)
	later, podsLater := l.scrape()
	cores := func(before, after scraped) float64 {
		return (after.cpu - before.cpu) / after.at.Sub(before.at).Seconds()
	}
	if c := cores(node, later); !later.at.After(node.at) || c <= 0 || c > 2.1 || later.memory < 20<<20 || later.memory > 512<<20 {
		l.Errorf("top node: %.3f cores, %.0f bytes, at %v and %v", c, later.memory, node.at, later.at)
	}
	for _, c := range []string{"main", "side"} {
		before, after := pods["default/web"][c], podsLater["default/web"][c]
		if after.at.Before(before.at.Add(10*time.Second)) || cores(before, after) < 0 || after.memory == 0 {
			l.Errorf("top pod web, container %s: %+v, then %+v", c, before, after)
		}
	}
	l.Logf("top: node %.0f millicores, %.1f MB; %d pods", 1000*cores(node, later), later.memory/1e6, len(podsLater))
}

// busy takes a fifth of a core and holds 30 MB.
const busy = `apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "dd if=/dev/zero of=/dev/shm/held bs=1M count=30; while :; do :; done"]
    resources: {limits: {cpu: 200m, memory: 64Mi}}
`

// metricsServer has the stock metrics-server scrape the node, which knows it by
// the token of a service account, and reads what kubectl top prints of that.
func (l lab) metricsServer() {
	l.c.MetricsServer(l.T)
	l.c.Apply(l.T, busy)
	var out string
	l.until("kubectl top tells of the node and its pods", func() string {
		nodes, err := l.c.Kubectl(l.Context(), "top", "node", "--no-headers")
		if err != nil {
			return err.Error()
		}
		pods, err := l.c.Kubectl(l.Context(), "top", "pod", "--containers", "--no-headers")
		if err != nil {
			return err.Error()
		}
		out = nodes + "\n" + pods
		for _, row := range []struct {
			what                     string // regular expression of the row
			cpu, mostCPU             int    // millicores
			megabytes, mostMegabytes int
		}{
			{name + ` +(\d+)m +\d+% +(\d+)Mi +\d+%`, 100, 2100, 50, 512},
			{`busy +main +(\d+)m +(\d+)Mi`, 100, 300, 25, 64},
			{`web +main +(\d+)m +(\d+)Mi`, 0, 2100, 0, 512},
			{`web +side +(\d+)m +(\d+)Mi`, 0, 2100, 0, 512},
			{`talker +main +(\d+)m +(\d+)Mi`, 0, 2100, 0, 512},
		} {
			found := regexp.MustCompile(`(?m)^` + row.what + ` *$`).FindStringSubmatch(out)
			if found == nil {
				return "no row " + row.what + " in\n" + out
			}
			cpu, _ := strconv.Atoi(found[1]) // they are digits
			megabytes, _ := strconv.Atoi(found[2])
			if cpu < row.cpu || cpu > row.mostCPU || megabytes < row.megabytes || megabytes > row.mostMegabytes {
				return fmt.Sprintf("%q, want %d to %d millicores and %d to %d MB", found[0], row.cpu, row.mostCPU, row.megabytes, row.mostMegabytes)
			}
		}
		return ""
	})
	l.Logf("kubectl top node, and pod --containers:\n%s", out)
	l.c.Must(l.T, "delete", "pod", "busy")
}
