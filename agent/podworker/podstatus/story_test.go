package podstatus

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

var update = flag.Bool("update", false, "write the expected statuses in testdata anew")

// step is one moment of a pod's life. Pod and Previous are filled in by the
// story; forget restarts the agent without any state.
type step struct {
	name   string
	in     Input
	forget bool
}

// stories are the lives of pods; testdata/NAME.yaml holds the whole status
// expected at each step.
var stories = []struct {
	name  string
	pod   *v1.Pod
	steps []step
}{
	{
		name: "two-containers-and-init",
		pod:  basePod([]string{"b", "a"}, inits("i"), furnished),
		steps: []step{
			{name: "admitted", in: Input{Now: at(0)}},
			{name: "init container is created", in: Input{Now: at(2), Observed: observed(sandbox(0, true), created("i", 0))}},
			{name: "init container runs", in: Input{Now: at(3), Observed: observed(sandbox(0, true), running("i", 0, 3))}},
			{name: "init container is done", in: Input{Now: at(5), Observed: observed(sandbox(0, true), exited("i", 0, 3, 4, 0, "Completed"))}},
			{
				name: "a runs and b has no image",
				in: Input{
					Now: at(6), Observed: observed(sandbox(0, true), exited("i", 0, 3, 4, 0, "Completed"), running("a", 0, 6)),
					Waiting: map[string]Reason{"b": {"ErrImagePull", "pull image \"img:1\": no route to host"}},
				},
			},
			{name: "both run", in: Input{Now: at(8), Observed: observed(sandbox(0, true), exited("i", 0, 3, 4, 0, "Completed"), running("a", 0, 6), running("b", 0, 8))}},
			{name: "the agent starts again", forget: true, in: Input{Now: at(90), Observed: observed(sandbox(0, true), exited("i", 0, 3, 4, 0, "Completed"), running("a", 0, 6), running("b", 0, 8))}},
			{name: "the pod is being stopped", in: Input{Now: at(100), Terminating: true, Observed: observed(sandbox(0, true), exited("i", 0, 3, 4, 0, "Completed"), exited("a", 0, 6, 100, 143, "Error"), running("b", 0, 8))}},
			{name: "the pod is stopped", in: Input{Now: at(101), Terminated: true, Observed: observed(sandbox(0, false), exited("i", 0, 3, 4, 0, "Completed"), exited("a", 0, 6, 100, 143, "Error"), exited("b", 0, 8, 101, 0, "Completed"))}},
		},
	},
	{
		name: "crash-loop",
		pod:  basePod([]string{"a"}),
		steps: []step{
			{name: "runs", in: Input{Now: at(3), Observed: observed(sandbox(0, true), running("a", 0, 3))}},
			{name: "has crashed", in: Input{
				Now: at(5), Observed: observed(sandbox(0, true), exited("a", 0, 3, 5, 1, "Error")),
				Messages: map[string]string{"a-0": "no such device"},
			}},
			{name: "runs again", in: Input{Now: at(6), Observed: observed(sandbox(0, true), running("a", 1, 6), exited("a", 0, 3, 5, 1, "Error"))}},
			{name: "waits", in: Input{
				Now: at(8), Observed: observed(sandbox(0, true), exited("a", 1, 6, 8, 137, "OOMKilled"), exited("a", 0, 3, 5, 1, "Error")),
				Waiting: map[string]Reason{"a": {"CrashLoopBackOff", "back-off 10s restarting failed container=a pod=web_default(uid-1)"}},
			}},
			{name: "the agent starts again while it waits", forget: true, in: Input{
				Now: at(9), Observed: observed(sandbox(0, true), exited("a", 1, 6, 8, 137, "OOMKilled"), exited("a", 0, 3, 5, 1, "Error")),
				Waiting: map[string]Reason{"a": {"CrashLoopBackOff", "back-off 10s restarting failed container=a pod=web_default(uid-1)"}},
			}},
			{name: "cannot be started", in: Input{
				Now: at(18), Observed: observed(sandbox(0, true), created("a", 2), exited("a", 1, 6, 8, 137, "OOMKilled")),
				Waiting: map[string]Reason{"a": {"RunContainerError", "container runtime is not reachable"}},
			}},
			{name: "runs for the third time", in: Input{Now: at(19), Observed: observed(sandbox(0, true), running("a", 2, 19), exited("a", 1, 6, 8, 137, "OOMKilled"))}},
			{name: "the power went", in: Input{Now: at(40), Observed: observed(sandbox(0, false), exited("a", 2, 19, 40, 255, "Unknown"), exited("a", 1, 6, 8, 137, "OOMKilled"))}},
		},
	},
	{
		name: "completes",
		pod:  basePod([]string{"a"}, policy(v1.RestartPolicyOnFailure)),
		steps: []step{
			{name: "admitted", in: Input{Now: at(0)}},
			{name: "has a sandbox", in: Input{Now: at(1), Observed: observed(sandbox(0, true))}},
			{name: "runs", in: Input{Now: at(3), Observed: observed(sandbox(0, true), running("a", 0, 3))}},
			{name: "failed", in: Input{Now: at(5), Observed: observed(sandbox(0, true), exited("a", 0, 3, 5, 2, "Error"))}},
			{name: "runs again", in: Input{Now: at(6), Observed: observed(sandbox(0, true), running("a", 1, 6), exited("a", 0, 3, 5, 2, "Error"))}},
			{name: "completed", in: Input{Now: at(9), Observed: observed(sandbox(0, true), exited("a", 1, 6, 9, 0, "Completed"), exited("a", 0, 3, 5, 2, "Error"))}},
			{name: "its sandbox is stopped", in: Input{Now: at(10), Observed: observed(sandbox(0, false), exited("a", 1, 6, 9, 0, "Completed"), exited("a", 0, 3, 5, 2, "Error"))}},
			{name: "the agent starts again", forget: true, in: Input{Now: at(50), Observed: observed(sandbox(0, false), exited("a", 1, 6, 9, 0, "Completed"), exited("a", 0, 3, 5, 2, "Error"))}},
		},
	},
	{
		name: "sidecar-and-debugger",
		pod:  basePod([]string{"a"}, policy(v1.RestartPolicyNever), sidecars("s"), probed("s"), ephemerals("e")),
		steps: []step{
			{name: "the sidecar runs", in: Input{Now: at(3), Observed: observed(sandbox(0, true), running("s", 0, 3)), Probes: map[string]pod.ProbeResult{"s-0": {}}}},
			{name: "it has started", in: Input{Now: at(5), Observed: observed(sandbox(0, true), running("s", 0, 3), created("a", 0)), Probes: map[string]pod.ProbeResult{"s-0": {Started: true}}}},
			{name: "all is ready, and an ephemeral container runs", in: Input{Now: at(6), Observed: observed(sandbox(0, true), running("s", 0, 3), running("a", 0, 5), running("e", 0, 6)), Probes: map[string]pod.ProbeResult{"s-0": {Started: true, Ready: true}}}},
			{name: "the agent starts again", forget: true, in: Input{Now: at(7), Observed: observed(sandbox(0, true), running("s", 0, 3), running("a", 0, 5), exited("e", 0, 6, 7, 1, "Error"))}},
			{name: "the work is done", in: Input{Now: at(20), Observed: observed(sandbox(0, true), running("s", 0, 3), exited("a", 0, 5, 20, 0, "Completed"), exited("e", 0, 6, 7, 1, "Error")), Probes: map[string]pod.ProbeResult{"s-0": {Started: true, Ready: true}}}},
			{name: "the sidecar was stopped", in: Input{Now: at(21), Terminating: true, Observed: observed(sandbox(0, true), exited("s", 0, 3, 21, 137, "Error"), exited("a", 0, 5, 20, 0, "Completed"), exited("e", 0, 6, 7, 1, "Error"))}},
		},
	},
	{
		name: "all-containers-restart",
		pod:  basePod([]string{"a", "b"}, policy(v1.RestartPolicyNever), inits("i"), rules("a", v1.ContainerRestartRuleActionRestartAllContainers)),
		steps: []step{
			{name: "runs", in: Input{Now: at(5), Observed: observed(sandbox(0, true), exited("i", 0, 3, 4, 0, "Completed"), running("a", 0, 5), running("b", 0, 5))}},
			{name: "a asks for it", in: Input{Now: at(20), Observed: observed(sandbox(0, true), exited("i", 0, 3, 4, 0, "Completed"), exited("a", 0, 5, 20, 42, "Error"), running("b", 0, 5))}},
			{name: "b was killed", in: Input{Now: at(21), Observed: observed(sandbox(0, true), exited("i", 0, 3, 4, 0, "Completed"), exited("a", 0, 5, 20, 42, "Error"), exited("b", 0, 5, 21, 137, "Error"))}},
			{name: "all but a are removed", in: Input{Now: at(22), Observed: observed(sandbox(0, true), exited("a", 0, 5, 20, 42, "Error"))}},
			{name: "all are removed", in: Input{Now: at(22), Observed: observed(sandbox(0, true))}},
			{name: "init runs again", in: Input{Now: at(23), Observed: observed(sandbox(0, true), again(running("i", 0, 23)))}},
			{name: "all run again", in: Input{Now: at(25), Observed: observed(sandbox(0, true), again(exited("i", 0, 23, 24, 0, "Completed")), again(running("a", 0, 25)), again(running("b", 0, 25)))}},
		},
	},
}

// again is a container with another ID.
func again(c container.Container) container.Container {
	c.ID += "-again"
	return c
}

func TestStories(t *testing.T) {
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			file := filepath.Join("testdata", story.name+".yaml")
			want := map[string]string{}
			if !*update {
				want = read(t, file)
			}
			var all strings.Builder
			var previous *v1.PodStatus
			for _, s := range story.steps {
				if s.forget {
					previous = nil
				}
				in := s.in
				in.Pod, in.Previous, in.HostIPs = story.pod, previous, []string{"192.168.1.7"}
				got := Generate(in)
				text := marshal(t, &got)
				all.WriteString("# " + s.name + "\n" + text + "---\n")
				if d := gocmp.Diff(want[s.name], text); d != "" && !*update {
					t.Errorf("%s (-want +got):\n%s", s.name, d)
				}
				in.Previous = &got
				if again := Generate(in); marshal(t, &again) != text {
					t.Errorf("%s: generated upon itself it changes:\n%s", s.name, gocmp.Diff(got, again))
				}
				previous = &got
			}
			if *update {
				if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if len(want) != len(story.steps) {
				t.Errorf("%s has %d statuses, want %d", file, len(want), len(story.steps))
			}
		})
	}
}

// read splits a file of statuses, each with its step's name in a comment.
func read(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for doc := range strings.SplitSeq(string(data), "---\n") {
		name, text, ok := strings.Cut(doc, "\n")
		if ok {
			out[strings.TrimPrefix(name, "# ")] = text
		}
	}
	return out
}

func marshal(t *testing.T, s *v1.PodStatus) string {
	t.Helper()
	text, err := yaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
