package stats

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/probe"
)

func resource(t *testing.T, s *Stats) string {
	t.Helper()
	var out bytes.Buffer
	if err := s.WriteResource(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	exposition(t, out.String())
	return out.String()
}

func cadvisor(t *testing.T, s *Stats) string {
	t.Helper()
	var out bytes.Buffer
	if err := s.WriteCadvisor(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	exposition(t, out.String())
	return out.String()
}

// exposition checks a text with Prometheus' parser, and by rules of the format
// that the parser does not check: a family is in one piece, and a series occurs
// once.
func exposition(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	for _, problem := range metricstest.Problems([]byte(text)) {
		t.Error(problem)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("a parser refuses the text: %v\n%s", err, text)
	}
	begun, seen := map[string]bool{}, map[string]bool{}
	family := ""
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			family, _, _ = strings.Cut(rest, " ")
			if begun[family] {
				t.Errorf("family %s is in pieces", family)
			}
			begun[family] = true
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		end := strings.LastIndexByte(line, '}') + 1
		if end == 0 {
			end = strings.IndexByte(line, ' ')
		}
		series := line[:end]
		if !strings.HasPrefix(series, family) {
			t.Errorf("%s is among the samples of %s", series, family)
		}
		if seen[series] {
			t.Errorf("%s is there twice", series)
		}
		seen[series] = true
	}
	return families
}

// samples are the lines of one family.
func samples(text, family string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, family); ok && (rest[0] == '{' || rest[0] == ' ') {
			out = append(out, strings.TrimSuffix(rest, "\n"))
		}
	}
	return out
}

// point is the data that metrics-server has of a container.
type point struct {
	cpu, memory, swap uint64
	at, start         int64
}

// metricsServer parses a text as metrics-server does, by the rules of its
// pkg/scraper/client/resource/decode.go: labels are found by their names without
// regard to the context; a container that any sample names counts; and a whole
// pod is dropped if one of its containers has no CPU time or no memory, as is
// the node.
func metricsServer(t *testing.T, text string) (node *point, pods map[string]map[string]point) {
	t.Helper()
	node, pods = &point{}, map[string]map[string]point{}
	label := func(labels, name string) string {
		_, after, found := strings.Cut(labels, name+`="`)
		if !found {
			t.Fatalf("no label %s in %s", name, labels)
		}
		value, _, _ := strings.Cut(after, `"`)
		return value
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		series, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		number, stamp, timed := strings.Cut(rest, " ")
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatal(err)
		}
		at := int64(-1) // the time of the request
		if timed {
			if at, err = strconv.ParseInt(stamp, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		name, labels, _ := strings.Cut(series, "{")
		var container *point
		var pod, of string
		if strings.HasPrefix(name, "container_") && name != "container_swap_limit_bytes" {
			pod, of = label(labels, "namespace")+"/"+label(labels, "pod"), label(labels, "container")
			p := pods[pod][of]
			container = &p
		}
		switch name {
		case "node_cpu_usage_seconds_total":
			node.cpu, node.at = uint64(value*1e9), at
		case "node_memory_working_set_bytes":
			node.memory, node.at = uint64(value), at
		case "container_cpu_usage_seconds_total":
			container.cpu, container.at = uint64(value*1e9), at
		case "container_memory_working_set_bytes":
			container.memory, container.at = uint64(value), at
		case "container_swap_usage_bytes":
			container.swap, container.at = uint64(value), at
		case "container_start_time_seconds":
			container.start = int64(value * 1e9)
		}
		if container != nil {
			if pods[pod] == nil {
				pods[pod] = map[string]point{}
			}
			pods[pod][of] = *container
		}
	}
	if node.at == 0 || node.cpu == 0 || node.memory == 0 {
		node = nil
	}
	for pod, containers := range pods {
		for _, p := range containers {
			if p != (point{}) && (p.cpu == 0 || p.memory == 0) {
				delete(pods, pod)
			}
		}
	}
	return node, pods
}

func TestResource(t *testing.T) {
	b := newBoard(t)
	b.pod(t, "default", "web", "app", "side")
	b.pod(t, "kube-system", "fresh", "runs", "not-yet", "empty")
	b.write(t, b.pods[1].Containers[1].Cgroup, map[string]string{"cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\n"})
	b.write(t, b.pods[1].Containers[2].Cgroup, map[string]string{"memory.current": "1000\n"})
	b.write(t, b.pods[0].Containers[0].Cgroup, map[string]string{"memory.swap.max": "1048576\n"})
	s := b.stats(t)
	text := resource(t, s)
	for family, want := range map[string][]string{
		"node_cpu_usage_seconds_total":  {" 100"},
		"node_memory_working_set_bytes": {" 70000000"},
		"node_swap_usage_bytes":         {" 4194304"},
		"container_start_time_seconds": {
			`{container="app",namespace="default",pod="web"} 1.7000001005e+09`,
			`{container="side",namespace="default",pod="web"} 1.7000001005e+09`,
			`{container="runs",namespace="kube-system",pod="fresh"} 1.7000001005e+09`,
		},
		"container_cpu_usage_seconds_total": {
			`{container="app",namespace="default",pod="web"} 1`,
			`{container="side",namespace="default",pod="web"} 2`,
			`{container="runs",namespace="kube-system",pod="fresh"} 1`,
		},
		"container_memory_working_set_bytes": {
			`{container="app",namespace="default",pod="web"} 1001000`,
			`{container="side",namespace="default",pod="web"} 2001000`,
			`{container="runs",namespace="kube-system",pod="fresh"} 1001000`,
		},
		"container_swap_usage_bytes": {
			`{container="app",namespace="default",pod="web"} 4096`,
			`{container="side",namespace="default",pod="web"} 4096`,
			`{container="runs",namespace="kube-system",pod="fresh"} 4096`,
		},
		"container_swap_limit_bytes":   {`{container="app",namespace="default",pod="web"} 1048576`},
		"pod_cpu_usage_seconds_total":  {`{namespace="default",pod="web"} 10`, `{namespace="kube-system",pod="fresh"} 10`},
		"pod_memory_working_set_bytes": {`{namespace="default",pod="web"} 10001000`, `{namespace="kube-system",pod="fresh"} 10001000`},
		"pod_swap_usage_bytes":         {`{namespace="default",pod="web"} 4096`, `{namespace="kube-system",pod="fresh"} 4096`},
		"resource_scrape_error":        {" 0"},
		"scrape_error":                 {" 0"},
	} {
		got := samples(text, family)
		if !strings.HasSuffix(family, "_error") && !strings.HasSuffix(family, "_start_time_seconds") {
			for i := range got { // the time of the reading
				end := strings.LastIndexByte(got[i], ' ')
				at, err := strconv.ParseInt(got[i][end+1:], 10, 64)
				if err != nil || at < 1600000000000 {
					t.Errorf("%s%s has no time", family, got[i])
				}
				got[i] = got[i][:end]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", family, diff)
		}
	}
	for _, why := range []string{`container=not-yet reason="no CPU time used"`, `container=empty reason="empty working set"`} {
		if !strings.Contains(b.log.String(), why) {
			t.Errorf("%s is not in the log:\n%s", why, &b.log)
		}
	}

	node, pods := metricsServer(t, text)
	if node == nil || node.cpu != 100e9 || node.memory != 70e6 {
		t.Errorf("metrics-server's node: %+v", node)
	}
	if web := pods["default/web"]; len(web) != 2 || web["side"].cpu != 2e9 || web["side"].memory != 2001000 || web["side"].start != started.UnixNano() {
		t.Errorf("metrics-server's pod: %+v", web)
	}
	if fresh := pods["kube-system/fresh"]; len(fresh) != 1 || fresh["runs"].cpu != 1e9 {
		t.Errorf("metrics-server's pod whose containers are not all running yet: %+v", fresh)
	}
}

// The rules of metricsServer in this test are the reason for omitting
// containers: with the line of one idle container the whole pod is lost.
func TestMetricsServerDropsPods(t *testing.T) {
	const full = `container_cpu_usage_seconds_total{container="a",namespace="n",pod="p"} 1 5` + "\n" +
		`container_memory_working_set_bytes{container="a",namespace="n",pod="p"} 1 5` + "\n"
	for line, dropped := range map[string]bool{
		"": false,
		`container_start_time_seconds{container="b",namespace="n",pod="p"} 1` + "\n":             true,
		`container_swap_usage_bytes{container="b",namespace="n",pod="p"} 0 5` + "\n":             true,
		`container_cpu_usage_seconds_total{container="b",namespace="n",pod="p"} 0 5` + "\n":      true,
		`container_cpu_usage_seconds_total{container="b",namespace="n",pod="other"} 0 5` + "\n":  false,
		`container_memory_working_set_bytes{container="b",namespace="n",pod="p"} 1 5` + "\n":     true,
		`container_swap_limit_bytes{container="b",namespace="n",pod="p"} 1 5` + "\n":             false,
		`container_memory_working_set_bytes{container="a",namespace="n",pod="p"} 0 5` + "\n":     true,
		`pod_cpu_usage_seconds_total{namespace="n",pod="p"} 0 5` + "\n":                          false,
		`container_memory_working_set_bytes_other{container="a",namespace="n",pod="p"} 0` + "\n": false,
	} {
		if _, pods := metricsServer(t, full+line); (pods["n/p"] == nil) != dropped {
			t.Errorf("with %q: %+v", line, pods)
		}
	}
}

func TestResourceWithoutSwap(t *testing.T) {
	b := newBoard(t)
	b.machine.SwapTotal, b.machine.SwapFree = 0, 0
	b.pod(t, "default", "web", "app")
	text := resource(t, b.stats(t))
	for family, want := range map[string]int{"node_swap_usage_bytes": 1, "pod_swap_usage_bytes": 1, "container_swap_usage_bytes": 1, "container_swap_limit_bytes": 0} {
		got := samples(text, family)
		if len(got) != want || want > 0 && !strings.Contains(got[0], " 0 ") {
			t.Errorf("%s: %q", family, got)
		}
	}
}

func TestCadvisor(t *testing.T) {
	b := newBoard(t)
	b.withNetwork()
	b.cfg.SystemContainers = func() []SystemContainer {
		return []SystemContainer{{Name: "kubelet", Cgroup: "/system/tinylet", Start: started}, {Name: "runtime", Cgroup: "/system/tinylet"}, {Name: "pods", Cgroup: "/kubepods"}}
	}
	b.write(t, "system/tinylet", group(3, 9e6))
	b.write(t, "kubepods", group(20, 20e6))
	b.pod(t, "default", "web", "app")
	b.pod(t, "default", "broken")
	b.write(t, b.pods[0].Containers[0].Cgroup, map[string]string{"memory.max": "max\n"})
	b.write(t, b.pods[1].Cgroup, map[string]string{"cpu.stat": "usage_usec 1\nuser_usec 1\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"})
	text := cadvisor(t, b.stats(t))

	const (
		app      = `{container="app",id="/kubepods/burstable/poduid-web/app",image="docker.io/library/busybox:1.36",name="web-app",namespace="default",pod="web"`
		web      = `{container="",id="/kubepods/burstable/poduid-web",image="",name="",namespace="default",pod="web"`
		broken   = `{container="",id="/kubepods/burstable/poduid-broken",image="",name="",namespace="default",pod="broken"`
		sandbox  = `{container="",id="/kubepods/burstable/poduid-web/sandbox",image="registry.k8s.io/pause:3.10",name="sandbox-web",namespace="default",pod="web"`
		root     = `{container="",id="/",image="",name="",namespace="",pod=""`
		tinylet  = `{container="",id="/system/tinylet",image="",name="",namespace="",pod=""`
		kubepods = `{container="",id="/kubepods",image="",name="",namespace="",pod=""`
		device   = `,device="/dev/mmcblk0"} `
	)
	for family, want := range map[string][]string{
		"container_start_time_seconds": {root + "} 1700000000", tinylet + "} 1700000100", web + "} 1700000099", app + "} 1700000100", broken + "} 1700000099"},
		"container_cpu_usage_seconds_total": {
			root + `,cpu="total"} 100`, tinylet + `,cpu="total"} 3`, kubepods + `,cpu="total"} 20`,
			web + `,cpu="total"} 10`, app + `,cpu="total"} 1`, broken + `,cpu="total"} 1e-06`,
		},
		"container_cpu_cfs_periods_total":           {tinylet + "} 10", kubepods + "} 10", web + "} 10", app + "} 10"},
		"container_cpu_cfs_throttled_periods_total": {tinylet + "} 2", kubepods + "} 2", web + "} 2", app + "} 2"},
		"container_memory_working_set_bytes":        {root + "} 70000000", tinylet + "} 9001000", kubepods + "} 20001000", web + "} 10001000", app + "} 1001000", broken + "} 10001000"},
		"container_memory_usage_bytes":              {root + "} 80000000", tinylet + "} 9003000", kubepods + "} 20003000", web + "} 10003000", app + "} 1003000", broken + "} 10003000"},
		"container_memory_rss":                      {root + "} 50000000", tinylet + "} 9000000", kubepods + "} 20000000", web + "} 10000000", app + "} 1000000", broken + "} 10000000"},
		"container_memory_cache":                    {root + "} 30000000", tinylet + "} 2500", kubepods + "} 2500", web + "} 2500", app + "} 2500", broken + "} 2500"},
		"container_memory_swap":                     {root + "} 4194304", tinylet + "} 4096", kubepods + "} 4096", web + "} 4096", app + "} 4096", broken + "} 4096"},
		"container_spec_memory_limit_bytes":         {root + "} 268435456", tinylet + "} 33554432", kubepods + "} 33554432", web + "} 33554432", app + "} 0", broken + "} 33554432"},
		"container_oom_events_total":                {tinylet + "} 1", kubepods + "} 1", web + "} 1", app + "} 1", broken + "} 1"},
		"container_fs_reads_total":                  {tinylet + device + "3", kubepods + device + "3", web + device + "3", app + device + "3", broken + device + "3"},
		"container_fs_reads_bytes_total":            {tinylet + device + "4096", kubepods + device + "4096", web + device + "4096", app + device + "4096", broken + device + "4096"},
		"container_fs_writes_total":                 {tinylet + device + "4", kubepods + device + "4", web + device + "4", app + device + "4", broken + device + "4"},
		"container_fs_writes_bytes_total":           {tinylet + device + "8192", kubepods + device + "8192", web + device + "8192", app + device + "8192", broken + device + "8192"},

		"container_pressure_cpu_waiting_seconds_total":    {root + "} 7", tinylet + "} 1.5", kubepods + "} 1.5", web + "} 1.5", app + "} 1.5", broken + "} 1.5"},
		"container_pressure_cpu_stalled_seconds_total":    {root + "} 0", tinylet + "} 0.25", kubepods + "} 0.25", web + "} 0.25", app + "} 0.25", broken + "} 0.25"},
		"container_pressure_memory_waiting_seconds_total": {tinylet + "} 1e-05", kubepods + "} 1e-05", web + "} 1e-05", app + "} 1e-05", broken + "} 1e-05"},
		"container_pressure_memory_stalled_seconds_total": {tinylet + "} 5e-06", kubepods + "} 5e-06", web + "} 5e-06", app + "} 5e-06", broken + "} 5e-06"},
		"container_pressure_io_waiting_seconds_total":     {tinylet + "} 2e-05", kubepods + "} 2e-05", web + "} 2e-05", app + "} 2e-05", broken + "} 2e-05"},
		"container_pressure_io_stalled_seconds_total":     {tinylet + "} 1.5e-05", kubepods + "} 1.5e-05", web + "} 1.5e-05", app + "} 1.5e-05", broken + "} 1.5e-05"},

		"container_network_receive_bytes_total":            {root + `,interface="wlan0"} 1`, sandbox + `,interface="eth0"} 100`, sandbox + `,interface="net1"} 5`},
		"container_network_receive_packets_total":          {root + `,interface="wlan0"} 0`, sandbox + `,interface="eth0"} 10`, sandbox + `,interface="net1"} 0`},
		"container_network_receive_packets_dropped_total":  {root + `,interface="wlan0"} 0`, sandbox + `,interface="eth0"} 2`, sandbox + `,interface="net1"} 0`},
		"container_network_transmit_bytes_total":           {root + `,interface="wlan0"} 0`, sandbox + `,interface="eth0"} 200`, sandbox + `,interface="net1"} 6`},
		"container_network_transmit_packets_total":         {root + `,interface="wlan0"} 0`, sandbox + `,interface="eth0"} 20`, sandbox + `,interface="net1"} 0`},
		"container_network_transmit_packets_dropped_total": {root + `,interface="wlan0"} 0`, sandbox + `,interface="eth0"} 4`, sandbox + `,interface="net1"} 0`},

		"machine_cpu_cores":      {`{boot_id="boot",machine_id="machine",system_uuid="uuid"} 4`},
		"machine_memory_bytes":   {`{boot_id="boot",machine_id="machine",system_uuid="uuid"} 268435456`},
		"container_scrape_error": {" 0"},
		"machine_scrape_error":   {" 0"},
	} {
		if diff := cmp.Diff(want, samples(text, family)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", family, diff)
		}
	}
	if seen := samples(text, "container_last_seen"); len(seen) != 6 {
		t.Errorf("last seen: %q", seen)
	}
	if !strings.Contains(b.log.String(), "pod=default/broken") {
		t.Errorf("log:\n%s", &b.log)
	}
}

// Recording rules of the usual dashboards sum the series with an image over a
// pod. That must be its containers, each once.
func TestCadvisorSumsByImage(t *testing.T) {
	b := newBoard(t)
	b.pod(t, "default", "web", "app", "side", "third")
	families := exposition(t, cadvisor(t, b.stats(t)))
	sum := 0.0
	for _, m := range families["container_cpu_usage_seconds_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["image"] != "" && labels["pod"] == "web" {
			sum += m.GetCounter().GetValue()
			if labels["container"] == "" || labels["namespace"] != "default" {
				t.Errorf("labels %v", labels)
			}
		}
	}
	if sum != 1+2+3 {
		t.Errorf("the sum is %v", sum)
	}
}

// No name may be able to break the text format.
func TestHostileNames(t *testing.T) {
	b := newBoard(t)
	b.withNetwork()
	p := b.pod(t, "default", "web", "app")
	const evil = "a\"} 1\nnode_cpu_usage_seconds_total 1 \\"
	p.Name, p.Namespace, p.Containers[0].Name, p.Containers[0].Image, p.Sandbox.Image = evil, evil, evil, evil, "\xff"+strings.Repeat("x", 2*labelSize)
	s := b.stats(t)
	for _, text := range []string{resource(t, s), cadvisor(t, s)} {
		families := exposition(t, text)
		for _, m := range families["container_memory_working_set_bytes"].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "container" && l.GetValue() != "" && l.GetValue() != evil {
					t.Errorf("the name is read as %q", l.GetValue())
				}
			}
		}
		if n := len(families["node_cpu_usage_seconds_total"].GetMetric()); n > 1 {
			t.Errorf("%d samples of one node", n)
		}
	}
}

func TestProbes(t *testing.T) {
	var durations metrics.Histogram
	durations.Observe(0.02)
	durations.Observe(3)
	web := pod.Ref{Namespace: "default", Name: "web", UID: "u1"}
	var out bytes.Buffer
	if err := WriteProbes(&out, []probe.Count{
		{Kind: "Readiness", Pod: web, Container: "app", Successful: 2, Failed: 1, Durations: &durations},
		{Kind: "Liveness", Pod: web, Container: "app", Failed: 3},
		{Kind: "Startup", Pod: web, Container: "app"},
	}); err != nil {
		t.Fatal(err)
	}
	families := exposition(t, out.String())
	if diff := cmp.Diff([]string{
		`{container="app",namespace="default",pod="web",probe_type="Readiness",pod_uid="u1",result="successful"} 2`,
		`{container="app",namespace="default",pod="web",probe_type="Readiness",pod_uid="u1",result="failed"} 1`,
		`{container="app",namespace="default",pod="web",probe_type="Liveness",pod_uid="u1",result="failed"} 3`,
	}, samples(out.String(), "prober_probe_total")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	histograms := families["prober_probe_duration_seconds"].GetMetric()
	if len(histograms) != 1 || histograms[0].GetHistogram().GetSampleCount() != 2 || math.Abs(histograms[0].GetHistogram().GetSampleSum()-3.02) > 1e-9 {
		t.Errorf("histograms %v", histograms)
	}
	out.Reset()
	if err := WriteProbes(&out, nil); err != nil || out.Len() > 0 {
		t.Errorf("no probes: %v, %q", err, &out)
	}
}

func TestLabelTextKeepsApart(t *testing.T) {
	text := newLabelArena(1)
	var want []string
	var got [][]byte
	for i := range 12 { // more, and longer ones, than there is room for
		value := fmt.Sprint(i, strings.Repeat("y", i*60))
		got = append(got, text.keep(metrics.AppendLabel(text.free, "x", value)))
		want = append(want, `x="`+value+`"`)
	}
	for i := range got {
		_ = append(got[i], "overwritten"...)
	}
	if i := slices.IndexFunc(want, func(w string) bool { return !slices.ContainsFunc(got, func(g []byte) bool { return string(g) == w }) }); i >= 0 {
		t.Errorf("%q is lost", want[i])
	}
}
