package ledger

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/test/suites/cluster/census"
)

// web is a pod that runs, as the API server has it.
func web(change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1", Generation: 1},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "main"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
			}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, ObservedGeneration: 1,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://c1"}},
		},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func phase(phase corev1.PodPhase, policy corev1.RestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase, p.Spec.RestartPolicy = phase, policy }
}

// on is a board on which that pod runs.
func on(change ...func(*census.Census)) *census.Census {
	c := &census.Census{
		Sandboxes:  []census.Sandbox{{ID: "s1", UID: "u1", Pod: "web", Ready: true}},
		Containers: []census.Container{{ID: "c1", Sandbox: "s1", UID: "u1", Pod: "web", Name: "main", State: running}},
		Alive:      map[string]string{"s1": "u1", "c1": "u1"},
		Runs:       map[string]map[string]int{"u1": {"main": 0}},
		Folders:    []string{"u1"},
		Files:      map[string]map[string]string{"u1": {"v/version": "1"}},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func off() *census.Census { return &census.Census{} }

func sandbox(s census.Sandbox) func(*census.Census) {
	return func(c *census.Census) { c.Sandboxes = append(c.Sandboxes, s) }
}

func container(x census.Container) func(*census.Census) {
	return func(c *census.Census) { c.Containers = append(c.Containers, x) }
}

// observed returns a ledger that has observed the pod of a server that has version
// 1 of its ConfigMap.
func observed(t *testing.T, p corev1.Pod) *Ledger {
	t.Helper()
	l := New()
	l.Next("settings")
	if faults := l.Observe([]corev1.Pod{p}); faults != nil {
		t.Fatal(faults)
	}
	return l
}

// expect compares the result with a part of the expected one; "" is nothing.
func expect(t *testing.T, what string, got []string, want string) {
	t.Helper()
	if text := strings.Join(got, "\n"); want == "" && text != "" || !strings.Contains(text, want) {
		t.Errorf("%s: got %q, want %q", what, text, want)
	}
}

func TestCensus(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		pod                       corev1.Pod
		board                     *census.Census
		faults, missing, unsettle string
	}{
		{"in order", web(), on(), "", "", ""},
		{"lost", web(), off(), "", "pod web u1", "pod web u1"},
		{"container lost", web(), on(func(c *census.Census) { c.Containers = nil }), "", "ready sandboxes [s1]", "pod web u1"},
		{"sandbox lost", web(), on(func(c *census.Census) { c.Sandboxes[0].Ready = false }), "", "pod web u1", "pod web u1"},
		{"dead for the kernel", web(), on(func(c *census.Census) { delete(c.Alive, "c1") }), "", "pod web u1", "pod web u1"},
		{"two sandboxes", web(), on(sandbox(census.Sandbox{ID: "s2", UID: "u1", Pod: "web", Ready: true})), "2 ready sandboxes [s1 s2]", "", ""},
		{"two containers", web(), on(container(census.Container{ID: "c2", UID: "u1", Pod: "web", Name: "main", State: running})), "main 2 times: [c1 c2]", "", "the board runs [c1 c2]"},
		{"a dead one beside", web(), on(container(census.Container{ID: "c0", UID: "u1", Pod: "web", Name: "main", State: "EXITED"})), "", "", ""},
		{"another of that name", web(), on(container(census.Container{ID: "c2", UID: "u0", Pod: "web", Name: "main", State: running})), "two pods called web", "", "which is gone"},
		{"never ran", web(phase(corev1.PodPending, corev1.RestartPolicyAlways)), off(), "", "", "phase Pending"},
		{"a version of the future", web(), on(func(c *census.Census) { c.Files["u1"]["v/version"] = "2" }), `version "2" of ConfigMap settings, want one of 1 to 1`, "", "version 2"},
		{"an empty file", web(), on(func(c *census.Census) { c.Files["u1"]["v/version"] = "" }), `version ""`, "", "version 0"},
		{"ended", web(phase(corev1.PodSucceeded, corev1.RestartPolicyOnFailure)), on(func(c *census.Census) {
			c.Sandboxes[0].Ready, c.Containers[0].State, c.Alive = false, "EXITED", nil
		}), "", "", ""},
		{"ended and runs", web(phase(corev1.PodSucceeded, corev1.RestartPolicyOnFailure)), on(), "had ended, and has running", "", "it has ended"},
		{"ended and ran again", web(phase(corev1.PodFailed, corev1.RestartPolicyNever)), on(func(c *census.Census) {
			c.Containers[0].State, c.Runs["u1"]["main"] = "EXITED", 1
		}), "a log of run 1", "", "it has ended, and has sandboxes"},
		{"a sandbox of nobody", web(), on(sandbox(census.Sandbox{ID: "s9", UID: "u9", Pod: "old"})), "", "", "sandbox s9 of pod old u9"},
		{"a dead container of nobody", web(), on(container(census.Container{ID: "c9", UID: "u9", Name: "x", State: "EXITED"})), "", "", "container c9"},
		{"processes of nobody", web(), on(func(c *census.Census) { c.Alive["c8"] = "u1" }), "", "", "does not list"},
		{"a folder of nobody", web(), on(func(c *census.Census) { c.Folders = append(c.Folders, "u9") }), "", "", "the folder of pod u9"},
		{"logs of nobody", web(), on(func(c *census.Census) { c.Runs["u9"] = map[string]int{"x": 0} }), "", "", "logs of pod u9"},
		{"too many dead containers", web(), on(
			container(census.Container{ID: "c8", UID: "u1", Pod: "web", Name: "main", State: "EXITED"}),
			container(census.Container{ID: "c9", UID: "u1", Pod: "web", Name: "main", State: "EXITED"}),
		), "", "", "3 containers of pod u1"},
		{"another container at the server", web(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://c0" }), on(), "", "", "the API server has container c0"},
		{"an old generation", web(func(p *corev1.Pod) { p.Generation = 2 }), on(), "", "", "observed generation 1 of 2"},
		{"not ready", web(func(p *corev1.Pod) { p.Status.Conditions = nil }), on(), "", "", "as ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := New()
			l.Next("settings")
			l.Observe([]corev1.Pod{tt.pod})
			expect(t, "faults", l.Faults(tt.board), tt.faults)
			expect(t, "missing", l.Missing(tt.board), tt.missing)
			expect(t, "unsettled", l.Unsettled(tt.board), tt.unsettle)
		})
	}
}

func TestHeard(t *testing.T) {
	restarted := func(n int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = n }
	}
	for _, tt := range []struct {
		name        string
		first, then corev1.Pod
		cuts        int
		want        string
	}{
		{"the same", web(), web(), 3, ""},
		{"a restart for each cut", web(), web(restarted(3)), 3, ""},
		{"one more", web(), web(restarted(4)), 3, "4 restarts after 3 power cuts"},
		{"failed", web(), web(phase(corev1.PodFailed, corev1.RestartPolicyAlways)), 1, "its phase is Failed"},
		{"failed on failure", web(), web(phase(corev1.PodFailed, corev1.RestartPolicyOnFailure)), 1, "its phase is Failed"},
		{"failed without restarts", web(), web(phase(corev1.PodFailed, corev1.RestartPolicyNever)), 1, ""},
		{"waits after it ran", web(), web(phase(corev1.PodPending, corev1.RestartPolicyAlways)), 1, "was Running, and is Pending"},
		{"runs after its end", web(phase(corev1.PodSucceeded, corev1.RestartPolicyNever)), web(), 1, "it had ended"},
		{"deleted by nobody", web(), web(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), 1, "nobody has asked"},
		{"a generation of the future", web(), web(func(p *corev1.Pod) { p.Status.ObservedGeneration = 2 }), 0, "observed generation 2 of 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := observed(t, tt.first)
			for range tt.cuts {
				l.Cut()
			}
			expect(t, "faults", l.Observe([]corev1.Pod{tt.then}), tt.want)
		})
	}
	l := observed(t, web())
	l.Cut()
	l.Observe([]corev1.Pod{web(restarted(1))})
	expect(t, "fewer restarts", l.Observe([]corev1.Pod{web()}), "has 0 restarts, and had 1")
	expect(t, "vanished", l.Observe(nil), "nobody has deleted it")
}

// TestDeletion is a pod that is deleted, with and without waiting for the
// board.
func TestDeletion(t *testing.T) {
	for _, force := range []bool{false, true} {
		t.Run(fmt.Sprint("force ", force), func(t *testing.T) {
			l := observed(t, web())
			l.Doom("u1", force)
			if live := l.Live(); len(live) != 0 {
				t.Errorf("live %v", live)
			}
			expect(t, "missing", l.Missing(off()), "")
			expect(t, "unsettled", l.Unsettled(on()), "it is not deleted yet")
			expect(t, "gone", l.Observe(nil), "")
			if force {
				expect(t, "before it is known there", l.Faults(on()), "")
			} else {
				expect(t, "at once", l.Faults(on()), "was deleted and gone")
			}
			expect(t, "still there", l.Unsettled(on()), "which is gone")
			expect(t, "settled", l.Unsettled(off()), "")
			expect(t, "back", l.Faults(on()), "was deleted and gone")
			expect(t, "back at the server", l.Observe([]corev1.Pod{web()}), "it is back")
		})
	}
}

// TestJob has all pods of a Job deleted with it, also such as come late.
func TestJob(t *testing.T) {
	of := func(uid string) corev1.Pod {
		return web(func(p *corev1.Pod) { p.UID, p.Labels = types.UID(uid), map[string]string{JobLabel: "once"} })
	}
	l := observed(t, of("u1"))
	l.DoomJob("once")
	l.Observe([]corev1.Pod{of("u1"), of("u2")})
	expect(t, "gone", l.Observe(nil), "")
}

// TestVersions lets no pod go back behind a version that it had.
func TestVersions(t *testing.T) {
	at := func(version string) *census.Census {
		return on(func(c *census.Census) { c.Files["u1"]["v/version"] = version })
	}
	l := observed(t, web())
	l.Next("settings")
	l.Next("settings")
	expect(t, "first", l.Faults(at("1")), "")
	expect(t, "behind", l.Unsettled(at("2")), "version 2 of ConfigMap settings, want 3")
	expect(t, "newer", l.Faults(at("2")), "")
	l.Cut()
	expect(t, "back", l.Faults(at("1")), "want one of 2 to 3")
	expect(t, "on", l.Faults(at("3")), "")
	// Of a pod that does not run, the disk may have anything.
	expect(t, "not running", l.Faults(on(func(c *census.Census) { c.Containers, c.Files = nil, nil })), "")
}
