package conformance

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// testObserve checks that container.Observe returns what an agent has written
// into an object, in its own annotations and in those of a stock kubelet.
func testObserve(w *testEnv) {
	p := w.runPod()
	c := p.containerConfig("main", scriptReady)
	hostPath := filepath.Join(w.LogRoot, "message-"+p.uid)
	w.ok("write the message file", os.WriteFile(hostPath, nil, 0o666))
	w.Cleanup(func() { os.Remove(hostPath) })
	c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: hostPath}}
	c.Annotations = map[string]string{
		container.AnnotationHash:                     "5d7f3a1b",
		container.AnnotationRestartCount:             "3",
		container.AnnotationTerminationMessagePath:   "/dev/termination-log",
		container.AnnotationTerminationMessagePolicy: "File",
		container.AnnotationPodTerminationGrace:      "45",
		container.AnnotationBackoff:                  "80",
		container.AnnotationPreStopHandler:           `{"exec":{"command":["/bin/true"]}}`,
	}
	c.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: 50_000, CpuShares: 512}
	c.Metadata.Attempt = 3
	c.Image.UserSpecifiedImage = w.Image
	id := p.create(c)
	w.ok("StartContainer", w.Runtime.StartContainer(w.Context(), id))
	p.waitReady("main")

	o, err := container.Observe(w.Context(), w.Runtime, types.UID(p.uid))
	w.ok("Observe", err)
	want := &container.Observed{
		UID: types.UID(p.uid), Namespace: "default", Name: "conformance",
		Sandboxes: []container.Sandbox{{ID: p.id, Ready: true, HostNetwork: true}},
		Containers: []container.Container{{
			ID: id, Name: "main", SandboxID: p.id, State: container.StateRunning,
			PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/bin/true"}}},
			Hash:    "5d7f3a1b", RestartCount: 3, Backoff: 80 * time.Second, GracePeriod: 45 * time.Second,
			LogPath:                filepath.Join(p.config.GetLogDirectory(), "main/0.log"),
			TerminationMessagePath: hostPath,
			Resources:              &container.Resources{CPUShares: 512, CPUQuota: 50_000, CPUPeriod: 100_000},
		}},
	}
	unequal := cmp.Options{
		cmpopts.IgnoreFields(container.Sandbox{}, "CreatedAt"),
		cmpopts.IgnoreFields(container.Container{}, "CreatedAt", "StartedAt", "Image", "ImageRef", "ImageID", "User", "StopSignal"),
	}
	if diff := cmp.Diff(want, o, unequal); diff != "" {
		w.Errorf("Observe (-want +got):\n%s", diff)
	}
	if got := o.Latest("main"); got != nil && (got.StartedAt.IsZero() || got.Image == "" || got.ImageRef == "" || got.ImageID == "") {
		w.Errorf("start and image of the container are %v, %q, %q, %q", got.StartedAt, got.Image, got.ImageRef, got.ImageID)
	}
	if got := o.Latest("main"); got != nil {
		// Older runtimes report neither.
		if got.StopSignal != "" && got.StopSignal != v1.SIGTERM {
			w.Errorf("the stop signal is %q", got.StopSignal)
		}
		if u := got.User; u != nil && (u.Linux.UID != 0 || u.Linux.GID != 0) {
			w.Errorf("the user is %v", u.Linux)
		}
	}
	if !o.Running() {
		w.Error("the pod does not run")
	}

	text, err := os.ReadFile(filepath.Join(p.config.GetLogDirectory(), "main/0.log"))
	w.ok("read the log", err)
	fields := bytes.SplitN(bytes.TrimSpace(text), []byte(" "), 4)
	if len(fields) != 4 || string(fields[1]) != "stdout" || string(fields[2]) != "F" || string(fields[3]) != "ready" {
		w.Errorf("the log is %q", text)
	} else if _, err := time.Parse(time.RFC3339Nano, string(fields[0])); err != nil {
		w.Errorf("the log's time: %v", err)
	}

	unknown, err := container.Observe(w.Context(), w.Runtime, "unknown")
	w.ok("Observe of an unknown pod", err)
	if len(unknown.Sandboxes)+len(unknown.Containers) > 0 || unknown.Running() {
		w.Errorf("an unknown pod is %+v", unknown)
	}
}

func testListFilter(w *testEnv) {
	one, two := w.runPod(), w.runPod()
	a, b := one.create(one.containerConfig("main", scriptForever)), two.create(two.containerConfig("main", scriptForever))

	selector := map[string]string{container.LabelPodUID: two.uid}
	sandboxes, err := w.Runtime.ListPodSandbox(w.Context(), &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	w.ok("ListPodSandbox", err)
	if len(sandboxes) != 1 || sandboxes[0].GetId() != two.id || sandboxes[0].GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		w.Errorf("sandboxes of the second pod: %v", sandboxes)
	}
	containers, err := w.Runtime.ListContainers(w.Context(), &runtimeapi.ContainerFilter{LabelSelector: selector})
	w.ok("ListContainers", err)
	if len(containers) != 1 || containers[0].GetId() != b || containers[0].GetPodSandboxId() != two.id ||
		containers[0].GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
		w.Errorf("containers of the second pod: %v", containers)
	}

	all, err := w.Runtime.ListContainers(w.Context(), nil)
	w.ok("ListContainers of all", err)
	found := map[string]bool{}
	for _, c := range all {
		found[c.GetId()] = true
	}
	if !found[a] || !found[b] {
		w.Errorf("the list of all lacks one of %q, %q", a, b)
	}
	every, err := w.Runtime.ListPodSandbox(w.Context(), nil)
	w.ok("ListPodSandbox of all", err)
	if len(every) < 2 {
		w.Errorf("the list of all sandboxes has %d", len(every))
	}
}
