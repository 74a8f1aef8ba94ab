package resize_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// runs returns the World of a pod whose containers all run with its resources.
func runs(p *v1.Pod) resize.State {
	w := resize.State{Containers: map[string]resize.Running{}}
	for c := range pod.Containers(&p.Spec) {
		w.Containers[c.Name] = resize.Running{ID: "id-" + c.Name, Actual: resize.Recorded(resize.DesiredValues(p, c))}
	}
	return w
}

// words returns a short description of a plan.
func words(p *resize.Plan) []string {
	var out []string
	for _, r := range p.Restart {
		out = append(out, "restart "+r.Container)
	}
	for _, s := range p.Steps {
		if s.Kind != resize.Update {
			out = append(out, fmt.Sprintf("%s %s %d", map[resize.StepKind]string{resize.PodLimit: "PodLimit", resize.PodWeight: "PodWeight"}[s.Kind], s.Resource, s.Amount))
			continue
		}
		v := s.Values
		out = append(out, fmt.Sprintf("%s %s: %dm/%dm %d/%d", s.Resource, s.Container, v.CPURequest, v.CPULimit, v.MemoryRequest>>20, v.MemoryLimit>>20))
	}
	return out
}

func group(weight, quota, memory int64) resize.CgroupLimits {
	return resize.CgroupLimits{CPUWeight: resize.Known(weight), CPUQuota: resize.Known(quota), MemoryMax: resize.Known(memory << 20)}
}

func TestPlan(t *testing.T) {
	small, large := asks("500m", "64Mi", "1", "128Mi"), asks("1", "128Mi", "2", "256Mi")
	mixed := asks("1", "32Mi", "2", "96Mi")
	for _, row := range []struct {
		name      string
		was, pod  *v1.Pod
		had, gets resize.CgroupLimits
		change    func(*resize.State)
		want      []string
	}{
		{name: "nothing", was: newPod(app("main", small)), pod: newPod(app("main", small)), had: group(20, 100000, 128), gets: group(20, 100000, 128)},
		{name: "best effort", was: newPod(app("main", asks("", "", "", ""))), pod: newPod(app("main", asks("", "", "", ""))), had: group(1, 0, 0), gets: group(1, 0, 0)},
		{
			name: "grows", was: newPod(app("main", small)), pod: newPod(app("main", large)), had: group(20, 100000, 128), gets: group(40, 200000, 256),
			want: []string{
				"PodLimit memory 268435456", "memory main: 500m/1000m 128/256",
				"PodLimit cpu 200000", "PodWeight cpu 40", "cpu main: 1000m/2000m 128/256",
			},
		},
		{
			name: "shrinks", was: newPod(app("main", large)), pod: newPod(app("main", small)), had: group(40, 200000, 256), gets: group(20, 100000, 128),
			want: []string{
				"memory main: 1000m/2000m 64/128", "PodLimit memory 134217728",
				"cpu main: 500m/1000m 64/128", "PodWeight cpu 20", "PodLimit cpu 100000",
			},
		},
		{
			name: "cpu grows, memory shrinks", was: newPod(app("main", small)), pod: newPod(app("main", mixed)), had: group(20, 100000, 128), gets: group(40, 200000, 96),
			want: []string{
				"memory main: 500m/1000m 32/96", "PodLimit memory 100663296",
				"PodLimit cpu 200000", "PodWeight cpu 40", "cpu main: 1000m/2000m 32/96",
			},
		},
		{
			name: "one grows, the other shrinks", was: newPod(app("a", small), app("b", large)), pod: newPod(app("a", large), app("b", small)),
			want: []string{"memory b: 1000m/2000m 64/128", "memory a: 500m/1000m 128/256", "cpu b: 500m/1000m 64/128", "cpu a: 1000m/2000m 128/256"},
		},
		{
			name: "memory alone keeps cpu", was: newPod(app("main", small)), pod: newPod(app("main", asks("500m", "64Mi", "1", "192Mi"))),
			want: []string{"memory main: 500m/1000m 64/192"},
		},
		{
			name: "memory request alone", was: newPod(app("main", small)), pod: newPod(app("main", asks("500m", "96Mi", "1", "128Mi"))),
			want: []string{"memory main: 500m/1000m 96/128"},
		},
		{
			name: "requests only", was: newPod(app("main", asks("100m", "", "", ""))), pod: newPod(app("main", asks("200m", "", "", ""))),
			had: group(4, 0, 0), gets: group(8, 0, 0), want: []string{"PodWeight cpu 8", "cpu main: 200m/0m 0/0"},
		},
		{
			name: "limits only", was: newPod(app("main", asks("", "", "100m", ""))), pod: newPod(app("main", asks("", "", "200m", ""))),
			want: []string{"cpu main: 200m/200m 0/0"},
		},
		{
			name: "gets limits", was: newPod(app("main", asks("100m", "64Mi", "", ""))), pod: newPod(app("main", asks("100m", "64Mi", "1", "128Mi"))),
			had: group(4, 0, 0), gets: group(4, 100000, 128),
			want: []string{"memory main: 100m/0m 64/128", "PodLimit memory 134217728", "cpu main: 100m/1000m 64/128", "PodLimit cpu 100000"},
		},
		{
			name: "a limit is never taken away", was: newPod(app("main", small)), pod: newPod(app("main", asks("500m", "64Mi", "", ""))),
			had: group(20, 100000, 128), gets: resize.CgroupLimits{CPUWeight: resize.Known(20)},
		},
		{
			name: "restart for memory", was: newPod(app("a", small, v1.ResourceMemory), app("b", small)), pod: newPod(app("a", large, v1.ResourceMemory), app("b", large)),
			had: group(40, 200000, 256), gets: group(80, 400000, 512),
			want: []string{
				"restart a", "PodLimit memory 536870912", "memory b: 500m/1000m 128/256",
				"PodLimit cpu 400000", "PodWeight cpu 80", "cpu b: 1000m/2000m 128/256",
			},
		},
		{
			name: "restart for memory, cpu changes", was: newPod(app("main", small, v1.ResourceMemory)), pod: newPod(app("main", asks("600m", "64Mi", "1", "128Mi"), v1.ResourceMemory)),
			want: []string{"cpu main: 600m/1000m 64/128"},
		},
		{
			name: "a sidecar restarts", was: newPod(sidecar("proxy", small, v1.ResourceCPU), app("main", small)), pod: newPod(sidecar("proxy", large, v1.ResourceCPU), app("main", small)),
			want: []string{"restart proxy"},
		},
		{
			name: "a sidecar does not", was: newPod(sidecar("proxy", small), app("main", small)), pod: newPod(sidecar("proxy", asks("600m", "64Mi", "1", "128Mi")), app("main", small)),
			want: []string{"cpu proxy: 600m/1000m 64/128"},
		},
		{
			name: "an init container is not restarted", was: newPod(setup("setup", small, v1.ResourceCPU), app("main", small)), pod: newPod(setup("setup", asks("600m", "64Mi", "1", "128Mi"), v1.ResourceCPU), app("main", small)),
			want: []string{"cpu setup: 600m/1000m 64/128"},
		},
		{
			name: "during a restart", was: newPod(app("main", small)), pod: newPod(app("main", large)), had: group(20, 100000, 128), gets: group(40, 200000, 256),
			change: func(w *resize.State) { delete(w.Containers, "main") },
			want:   []string{"PodLimit memory 268435456", "PodLimit cpu 200000", "PodWeight cpu 40"},
		},
		{
			name: "pod-level limits are those of containers without", was: newPod(whole(small), app("main", asks("100m", "", "", ""))), pod: newPod(whole(large), app("main", asks("100m", "", "", ""))),
			had: group(20, 100000, 128), gets: group(40, 200000, 256),
			want: []string{
				"PodLimit memory 268435456", "memory main: 100m/1000m 0/256",
				"PodLimit cpu 200000", "PodWeight cpu 40", "cpu main: 100m/2000m 0/256",
			},
		},
		{
			name: "pod-level alone", was: newPod(whole(small), app("main", small)), pod: newPod(whole(large), app("main", small)),
			had: group(20, 100000, 128), gets: group(40, 200000, 256), want: []string{"PodLimit memory 268435456", "PodLimit cpu 200000", "PodWeight cpu 40"},
		},
		{
			name: "a runtime that tells nothing", was: newPod(app("main", small, v1.ResourceCPU)), pod: newPod(app("main", large, v1.ResourceCPU)),
			change: func(w *resize.State) { w.Containers["main"] = resize.Running{ID: "id-main"} },
		},
		{
			name: "no quotas", was: newPod(app("main", small)), pod: newPod(app("main", asks("500m", "64Mi", "2", "128Mi"))), had: group(20, 100000, 128), gets: group(20, 200000, 128),
			change: func(w *resize.State) { w.NoCPUQuota = true },
		},
		{
			name: "a cgroup that was not read", was: newPod(app("main", small)), pod: newPod(app("main", small)), gets: group(40, 200000, 256),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := runs(row.was)
			w.Cgroup, w.DesiredCgroup = row.had, row.gets
			if row.change != nil {
				row.change(&w)
			}
			plan := resize.PlanOf(row.pod, &w)
			if diff := cmp.Diff(row.want, words(&plan)); diff != "" {
				t.Error(diff)
			}
			if plan.IsEmpty() != (len(row.want) == 0) {
				t.Errorf("settled: %v", plan.IsEmpty())
			}
			for i := range plan.Restart {
				if want := "Container " + plan.Restart[i].Container + " resize requires restart"; plan.Restart[i].Message != want {
					t.Errorf("message %q, want %q", plan.Restart[i].Message, want)
				}
			}
		})
	}
}

// Whatever the amounts, an executed plan leads to an empty next plan, also with the
// values that the runtime reports.
func TestDoneIsSettled(t *testing.T) {
	for milli := int64(0); milli < 3000; milli += 7 {
		text := fmt.Sprintf("%dm", milli)
		p := newPod(app("main", asks(text, "", text, "64Mi")), app("more", asks(text, "32Mi", "", "")))
		w := runs(p)
		for name, c := range w.Containers {
			a := c.Actual
			c.Actual = resize.Observed(a.CPUShares.Value, a.CPUQuota.Value, a.CPUPeriod, a.MemoryLimit.Value)
			c.Actual.MemoryRequest = a.MemoryRequest
			w.Containers[name] = c
		}
		if plan := resize.PlanOf(p, &w); !plan.IsEmpty() {
			t.Fatalf("%s: %v", text, words(&plan))
		}
	}
}

func TestObserved(t *testing.T) {
	for _, row := range []struct {
		name                          string
		shares, quota, period, memory int64
		want                          resize.Actual
	}{
		{"all", 512, 50000, 100000, 1024, resize.Actual{CPUShares: resize.Known(512), CPUQuota: resize.Known(50000), CPUPeriod: 100000, MemoryLimit: resize.Known(1024)}},
		{"nothing", 0, 0, 0, 0, resize.Actual{MemoryLimit: resize.Known(0)}},
		{"no quota", 2, -1, 100000, 0, resize.Actual{CPUShares: resize.Known(2), CPUQuota: resize.Known(0), CPUPeriod: 100000, MemoryLimit: resize.Known(0)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, resize.Observed(row.shares, row.quota, row.period, row.memory)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValuesOn(t *testing.T) {
	r := asks("1", "1Gi", "2", "2Gi")
	r.Limits["example.com/led"] = r.Limits[v1.ResourceCPU]
	got := resize.Values{CPURequest: 100, MemoryLimit: 1 << 20}.ApplyTo(r)
	if got.Requests.Cpu().String() != "100m" || got.Limits.Memory().String() != "1Mi" || len(got.Limits) != 2 {
		t.Errorf("got %v", got)
	}
	if r.Requests.Cpu().String() != "1" {
		t.Error("the argument was changed")
	}
}

func TestCheck(t *testing.T) {
	small, large := asks("500m", "64Mi", "1", "128Mi"), asks("500m", "64Mi", "1", "256Mi")
	unlimited := asks("500m", "64Mi", "1", "")
	const limit = 128 << 20
	use := func(n int64) map[string]resize.Amount { return map[string]resize.Amount{"main": resize.Known(n)} }
	for _, row := range []struct {
		name      string
		was, pod  v1.ResourceRequirements
		had, gets resize.CgroupLimits
		usage     resize.Usage
		want      string
		lowers    bool
	}{
		{name: "grows", was: small, pod: large, had: group(1, 0, 128), gets: group(1, 0, 256)},
		{name: "enough is free", was: large, pod: small, usage: resize.Usage{Containers: use(limit - 1)}, lowers: true},
		{
			name: "in use", was: large, pod: small, usage: resize.Usage{Containers: use(limit)}, lowers: true,
			want: `cannot decrease memory limits: attempting to set container "main" memory limit (134217728) below current usage (134217728)`,
		},
		{
			name: "a limit where there was none", was: unlimited, pod: small, usage: resize.Usage{Containers: use(limit + 1)}, lowers: true,
			want: `cannot decrease memory limits: attempting to set container "main" memory limit (134217728) below current usage (134217729)`,
		},
		{
			name: "usage is not known", was: large, pod: small, lowers: true,
			want: `cannot decrease memory limits: missing container "main" memory usage`,
		},
		{
			name: "the pod's", was: small, pod: small, had: group(1, 0, 256), gets: group(1, 0, 128), usage: resize.Usage{Pod: resize.Known(limit)}, lowers: true,
			want: `cannot decrease memory limits: attempting to set pod memory limit (134217728) below current usage (134217728)`,
		},
		{
			name: "both", was: large, pod: small, had: group(1, 0, 256), gets: group(1, 0, 128), lowers: true,
			want: `cannot decrease memory limits: [missing container "main" memory usage, missing pod memory usage]`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := runs(newPod(app("main", row.was)))
			w.Cgroup, w.DesiredCgroup = row.had, row.gets
			plan := resize.PlanOf(newPod(app("main", row.pod)), &w)
			got := ""
			if err := plan.Check(row.usage); err != nil {
				got = err.Error()
				if !errors.Is(err, resize.ErrMemoryInUse) {
					t.Errorf("%v is not ErrMemoryInUse", err)
				}
			}
			if got != row.want || plan.LowersMemory() != row.lowers {
				t.Errorf("got %q, lowers %v\nwant %q, %v", got, plan.LowersMemory(), row.want, row.lowers)
			}
		})
	}
}
