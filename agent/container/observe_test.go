package container_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod"
)

// canned returns canned responses, of shapes that the fake does not produce.
type canned struct {
	container.Runtime
	sandboxes  []*runtimeapi.PodSandboxStatus
	containers []*runtimeapi.ContainerStatus
}

func (c *canned) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) (list []*runtimeapi.PodSandbox, err error) {
	for _, s := range c.sandboxes {
		list = append(list, &runtimeapi.PodSandbox{Id: s.GetId()})
	}
	return list, nil
}

func (c *canned) ListContainers(context.Context, *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	for _, s := range c.containers {
		list = append(list, &runtimeapi.Container{Id: s.GetId(), PodSandboxId: "s"})
	}
	return list, nil
}

func (c *canned) PodSandboxStatus(_ context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	for _, s := range c.sandboxes {
		if s.GetId() == id {
			return s, nil
		}
	}
	return nil, container.ErrNotFound
}

func (c *canned) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	for _, s := range c.containers {
		if s.GetId() == id {
			return s, nil
		}
	}
	return nil, container.ErrNotFound
}

// TestErrorTexts shows that no error says twice what was attempted.
func TestErrorTexts(t *testing.T) {
	d, err := cri.New(cri.Config{RuntimeEndpoint: filepath.Join(t.TempDir(), "none.sock"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var o container.Observed
	_, all := container.Observe(t.Context(), d, "u")
	_, sandbox := o.WithSandbox(t.Context(), d, "s")
	_, made := o.WithContainer(t.Context(), d, "s", "c")
	for want, err := range map[string]error{
		`observe pod "u": list sandboxes: `: all,
		`get status of sandbox "s": `:       sandbox,
		`get status of container "c": `:     made,
	} {
		if want += container.ErrUnavailable.Error(); !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

func observe(t *testing.T, rt container.Runtime, uid types.UID) *container.Observed {
	t.Helper()
	o, err := container.Observe(t.Context(), rt, uid)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestObserveContainer(t *testing.T) {
	at := time.Unix(1_700_000_000, 5)
	full := &runtimeapi.ContainerStatus{
		Id:         "c",
		Metadata:   &runtimeapi.ContainerMetadata{Name: "main", Attempt: 9},
		State:      runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt:  at.UnixNano(),
		StartedAt:  at.Add(time.Second).UnixNano(),
		FinishedAt: at.Add(time.Minute).UnixNano(),
		ExitCode:   137,
		Reason:     "OOMKilled",
		Message:    "too much",
		Image:      &runtimeapi.ImageSpec{Image: "localhost/app:1", UserSpecifiedImage: "app"},
		ImageRef:   "localhost/app@sha256:1",
		ImageId:    "sha256:2",
		LogPath:    "/var/log/pods/x/main/3.log",
		Labels:     map[string]string{container.LabelPodName: "pod", container.LabelPodNamespace: "ns"},
		Annotations: map[string]string{
			container.AnnotationHash:                   "abc",
			container.AnnotationRestartCount:           "3",
			container.AnnotationBackoff:                "160",
			container.AnnotationPodTerminationGrace:    "0",
			container.AnnotationTerminationMessagePath: "/dev/termination-log",
			container.AnnotationPreStopHandler:         `{"httpGet":{"path":"/bye","port":"web","scheme":"HTTP"}}`,
		},
		User:       &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1000, Gid: 3000, SupplementalGroups: []int64{3000, 4000}}},
		StopSignal: runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS3,
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/data", HostPath: "/host/data"},
			{ContainerPath: "/dev/termination-log", HostPath: "/host/message"},
		},
	}
	want := container.Container{
		ID: "c", Name: "main", SandboxID: "s", State: container.StateExited,
		CreatedAt: at, StartedAt: at.Add(time.Second), FinishedAt: at.Add(time.Minute),
		ExitCode: 137, Reason: "OOMKilled", Message: "too much",
		Image: "app", ImageRef: "localhost/app@sha256:1", ImageID: "sha256:2",
		Hash: "abc", RestartCount: 3, Backoff: 160 * time.Second, GracePeriod: 0,
		PreStop:    &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/bye", Port: intstr.FromString("web"), Scheme: "HTTP"}},
		User:       &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1000, GID: 3000, SupplementalGroups: []int64{3000, 4000}}},
		StopSignal: "SIGRTMAX-3",
		LogPath:    "/var/log/pods/x/main/3.log", TerminationMessagePath: "/host/message",
	}
	bare := &runtimeapi.ContainerStatus{
		Id:        "c",
		Metadata:  &runtimeapi.ContainerMetadata{Name: "main", Attempt: 2},
		State:     runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		CreatedAt: time.Time{}.UnixNano(), // negative: so says containerd of an unset time
		Image:     &runtimeapi.ImageSpec{Image: "localhost/app:1"},
		ImageRef:  "sha256:2",
	}
	hostile := &runtimeapi.ContainerStatus{
		Id:       "c",
		Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 1<<32 - 1},
		Annotations: map[string]string{
			container.AnnotationRestartCount:           "-5",
			container.AnnotationBackoff:                "99999999999999999999",
			container.AnnotationPodTerminationGrace:    "-30",
			container.AnnotationTerminationMessagePath: "/not/mounted",
			container.AnnotationPreStopHandler:         `{"exec":{"command":[]}}`,
		},
		User:       &runtimeapi.ContainerUser{},
		StopSignal: 4711,
	}
	tests := []struct {
		name string
		in   *runtimeapi.ContainerStatus
		want container.Container
	}{
		{"all that there is", full, want},
		{"a runtime or agent that says little", bare, container.Container{
			ID: "c", Name: "main", SandboxID: "s", State: container.StateUnknown, RestartCount: 2, GracePeriod: -1,
			Image: "localhost/app:1", ImageRef: "sha256:2", ImageID: "sha256:2",
		}},
		{"hostile annotations", hostile, container.Container{
			ID: "c", Name: "main", SandboxID: "s", State: container.StateCreated, RestartCount: 1<<31 - 1, GracePeriod: -1,
		}},
		{"nothing at all", &runtimeapi.ContainerStatus{Id: "c"}, container.Container{
			ID: "c", SandboxID: "s", State: container.StateCreated, GracePeriod: -1,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := observe(t, &canned{containers: []*runtimeapi.ContainerStatus{tt.in}}, "u")
			if len(o.Containers) != 1 {
				t.Fatalf("%d containers", len(o.Containers))
			}
			if diff := cmp.Diff(tt.want, o.Containers[0]); diff != "" {
				t.Errorf("container (-want +got):\n%s", diff)
			}
		})
	}
}

func TestObserveSandbox(t *testing.T) {
	network := func(mode runtimeapi.NamespaceMode) *runtimeapi.LinuxPodSandboxStatus {
		return &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: mode}}}
	}
	tests := []struct {
		name string
		in   *runtimeapi.PodSandboxStatus
		want container.Sandbox
	}{
		{"ready with addresses", &runtimeapi.PodSandboxStatus{
			Id:       "s",
			Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 4},
			State:    runtimeapi.PodSandboxState_SANDBOX_READY,
			Network: &runtimeapi.PodSandboxNetworkStatus{
				Ip: "10.1.2.3", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}},
			},
			Linux: network(runtimeapi.NamespaceMode_POD),
		}, container.Sandbox{ID: "s", Attempt: 4, Ready: true, IPs: []string{"10.1.2.3", "fd00::1"}}},
		{"on the host's network", &runtimeapi.PodSandboxStatus{
			Id: "s", State: runtimeapi.PodSandboxState_SANDBOX_READY, Linux: network(runtimeapi.NamespaceMode_NODE),
		}, container.Sandbox{ID: "s", Ready: true, HostNetwork: true}},
		{"stopped", &runtimeapi.PodSandboxStatus{
			Id: "s", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 7,
		}, container.Sandbox{ID: "s", CreatedAt: time.Unix(0, 7)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := observe(t, &canned{sandboxes: []*runtimeapi.PodSandboxStatus{tt.in}}, "u")
			if diff := cmp.Diff([]container.Sandbox{tt.want}, o.Sandboxes); diff != "" {
				t.Errorf("sandboxes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewestFirst sets the clock back between two attempts.
func TestNewestFirst(t *testing.T) {
	c := func(id, name string, attempt uint32, created int64) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{Id: id, CreatedAt: created, Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}}
	}
	s := func(id string, attempt uint32, created int64) *runtimeapi.PodSandboxStatus {
		return &runtimeapi.PodSandboxStatus{Id: id, CreatedAt: created, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}}
	}
	o := observe(t, &canned{
		sandboxes:  []*runtimeapi.PodSandboxStatus{s("old", 0, 9000), s("new", 1, 10), s("older", 0, 8000)},
		containers: []*runtimeapi.ContainerStatus{c("a0", "a", 0, 9000), c("a2", "a", 2, 20), c("b0", "b", 0, 1), c("a1", "a", 1, 10)},
	}, "u")
	if got := o.Sandbox().ID; got != "new" {
		t.Errorf("the newest sandbox is %q", got)
	}
	if o.Sandboxes[1].ID != "old" {
		t.Errorf("of two sandboxes of one attempt the younger is not first: %v", o.Sandboxes)
	}
	if got := o.Latest("a").ID; got != "a2" {
		t.Errorf("the latest a is %q", got)
	}
	if got := o.Previous("a").ID; got != "a1" {
		t.Errorf("the previous a is %q", got)
	}
	if o.Latest("b").ID != "b0" || o.Previous("b") != nil || o.Latest("c") != nil || o.Previous("c") != nil {
		t.Error("b has one container and c none")
	}
}

func TestNothingObserved(t *testing.T) {
	for name, o := range map[string]*container.Observed{"nil": nil, "empty": {}} {
		if o.Sandbox() != nil || o.Latest("a") != nil || o.Previous("a") != nil || o.Running() {
			t.Errorf("%s: something was observed", name)
		}
	}
}

func TestRunning(t *testing.T) {
	tests := []struct {
		name string
		o    container.Observed
		want bool
	}{
		{"ready sandbox", container.Observed{Sandboxes: []container.Sandbox{{}, {Ready: true}}}, true},
		{"stopped sandbox", container.Observed{Sandboxes: []container.Sandbox{{}}}, false},
		{"running", container.Observed{Containers: []container.Container{{State: container.StateExited}, {State: container.StateRunning}}}, true},
		{"may run", container.Observed{Containers: []container.Container{{State: container.StateUnknown}}}, true},
		{"created", container.Observed{Containers: []container.Container{{State: container.StateCreated}}}, false},
		{"exited", container.Observed{Containers: []container.Container{{State: container.StateExited}}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.o.Running(); got != tt.want {
				t.Errorf("Running is %v", got)
			}
		})
	}
}

// startPod starts a pod with one container in the fake.
func startPod(t *testing.T, rt *fake.Runtime) (sandboxID, containerID string) {
	t.Helper()
	labels := map[string]string{container.LabelPodUID: "u", container.LabelPodName: "pod", container.LabelPodNamespace: "ns"}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Name: "pod", Namespace: "ns"}, Labels: labels,
	}
	sandboxID, err := rt.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	containerID, err = rt.CreateContainer(t.Context(), sandboxID, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "app"}, Labels: labels,
	}, config)
	if err != nil {
		t.Fatal(err)
	}
	return sandboxID, containerID
}

func TestObserveMeetsRemoval(t *testing.T) {
	for _, method := range []string{"PodSandboxStatus", "ContainerStatus"} {
		t.Run(method, func(t *testing.T) {
			rt := fake.New(fake.Config{})
			rt.AddImage("app", fake.Program{})
			startPod(t, rt)
			rt.Inject(method, fake.Fault{Err: container.ErrNotFound})
			o := observe(t, rt, "u")
			if len(o.Sandboxes)+len(o.Containers) != 1 {
				t.Errorf("observed %d sandboxes and %d containers, one of both has gone", len(o.Sandboxes), len(o.Containers))
			}
			if o.Name != "pod" || o.Namespace != "ns" {
				t.Errorf("the pod is %q in %q", o.Name, o.Namespace)
			}
		})
	}
}

// TestOneMore compares WithSandbox and WithContainer with a new Observe of the
// whole pod.
func TestOneMore(t *testing.T) {
	rt := fake.New(fake.Config{})
	rt.AddImage("app", fake.Program{})
	before := observe(t, rt, "u")
	sandboxID, containerID := startPod(t, rt)

	seen, err := before.WithSandbox(t.Context(), rt, sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	if seen, err = seen.WithContainer(t.Context(), rt, sandboxID, containerID); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(observe(t, rt, "u"), seen); d != "" {
		t.Errorf("created (-all +one):\n%s", d)
	}

	if err := rt.StartContainer(t.Context(), containerID); err != nil {
		t.Fatal(err)
	}
	running, err := seen.WithContainer(t.Context(), rt, sandboxID, containerID)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(observe(t, rt, "u"), running); d != "" {
		t.Errorf("started (-all +one):\n%s", d)
	}
	if seen.Containers[0].State != container.StateCreated || len(before.Sandboxes) != 0 {
		t.Error("what was seen before has changed")
	}

	if _, err := seen.WithContainer(t.Context(), rt, sandboxID, "another"); !errors.Is(err, container.ErrNotFound) {
		t.Errorf("an unknown container: %v", err)
	}
	if _, err := seen.WithSandbox(t.Context(), rt, "another"); !errors.Is(err, container.ErrNotFound) {
		t.Errorf("an unknown sandbox: %v", err)
	}
}

// TestStoppedSandbox checks that a stopped sandbox costs no status call: the list
// entry has everything.
func TestStoppedSandbox(t *testing.T) {
	rt := fake.New(fake.Config{})
	rt.AddImage("app", fake.Program{})
	sandboxID, _ := startPod(t, rt)
	ready := observe(t, rt, "u").Sandboxes[0]
	if err := rt.StopPodSandbox(t.Context(), sandboxID); err != nil {
		t.Fatal(err)
	}
	calls := rt.Count("PodSandboxStatus")
	o := observe(t, rt, "u")
	ready.Ready, ready.IPs = false, nil
	if d := cmp.Diff([]container.Sandbox{ready}, o.Sandboxes); d != "" || o.Name != "pod" {
		t.Errorf("pod %q (-want +got):\n%s", o.Name, d)
	}
	if n := rt.Count("PodSandboxStatus") - calls; n != 0 {
		t.Errorf("%d looks at a sandbox that is not ready", n)
	}
}

// TestStoppedSince checks WithStopped on a pod observed before the stop.
func TestStoppedSince(t *testing.T) {
	rt := fake.New(fake.Config{})
	rt.AddImage("app", fake.Program{})
	sandboxID, _ := startPod(t, rt)
	before := observe(t, rt, "u")
	if err := rt.StopPodSandbox(t.Context(), sandboxID); err != nil {
		t.Fatal(err)
	}
	want := observe(t, rt, "u").Sandboxes
	if d := cmp.Diff(want, before.WithStopped([]string{"other", sandboxID}).Sandboxes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !before.Sandboxes[0].Ready || !before.WithStopped(nil).Sandboxes[0].Ready {
		t.Error("what was seen before is changed")
	}
}

func TestObserveFails(t *testing.T) {
	for _, method := range []string{"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"} {
		t.Run(method, func(t *testing.T) {
			rt := fake.New(fake.Config{})
			rt.AddImage("app", fake.Program{})
			startPod(t, rt)
			rt.Inject(method, fake.Fault{Err: container.ErrUnavailable})
			if o, err := container.Observe(t.Context(), rt, "u"); !errors.Is(err, container.ErrUnavailable) {
				t.Errorf("observed %v, %v; half a pod is no observation", o, err)
			}
		})
	}
}

func TestIdentityOf(t *testing.T) {
	all := map[string]string{container.LabelPodUID: "u", container.LabelPodName: "n", container.LabelPodNamespace: "ns"}
	if id, ok := container.IdentityOf(all); !ok || id != (pod.Ref{UID: "u", Namespace: "ns", Name: "n"}) {
		t.Errorf("identity is %v, %v", id, ok)
	}
	for key := range all {
		labels := map[string]string{}
		for k, v := range all {
			if k != key {
				labels[k] = v
			}
		}
		if id, ok := container.IdentityOf(labels); ok {
			t.Errorf("without %s it is %v", key, id)
		}
	}
}

func TestGraceOf(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "30": 30 * time.Second, "": -1, "-1": -1, "x": -1, "1.5": -1, "4294967296": -1,
		"2147483647": 2147483647 * time.Second,
	} {
		if got := container.GracePeriodOf(map[string]string{container.AnnotationPodTerminationGrace: in}); got != want {
			t.Errorf("%q is %v, want %v", in, got, want)
		}
	}
	if got := container.GracePeriodOf(nil); got >= 0 {
		t.Errorf("no annotations are %v", got)
	}
}

func TestStateNames(t *testing.T) {
	for state, want := range map[container.State]string{
		container.StateUnknown: "unknown", container.StateCreated: "created",
		container.StateRunning: "running", container.StateExited: "exited", 200: "unknown",
	} {
		if got := state.String(); got != want {
			t.Errorf("state %d is %q, want %q", state, got, want)
		}
	}
}
