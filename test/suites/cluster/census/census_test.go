package census

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type lists struct{}

func (lists) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return []*runtimeapi.PodSandbox{
		{Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u1", Attempt: 2}},
		{Id: "s2", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u1"}, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY},
	}, nil
}

func (lists) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return []*runtimeapi.Container{{
		Id: "c1", PodSandboxId: "s1", Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 3},
		State:  runtimeapi.ContainerState_CONTAINER_RUNNING,
		Labels: map[string]string{"io.kubernetes.pod.uid": "u1", "io.kubernetes.pod.name": "web"},
	}}, nil
}

func TestRead(t *testing.T) {
	root := t.TempDir()
	for path, data := range map[string]string{
		"cgroup/cgroup.procs":                                          "",
		"cgroup/besteffort/podu1/cgroup.procs":                         "",
		"cgroup/besteffort/podu1/s1/cgroup.procs":                      "7\n",
		"cgroup/besteffort/podu1/c1/cgroup.procs":                      "",
		"cgroup/besteffort/podu1/c1/inner/cgroup.procs":                "8\n",
		"cgroup/podu2/c2/cgroup.procs":                                 "9\n",
		"cgroup/podu3/c3/cgroup.procs":                                 "",
		"logs/default_web_u1/main/0.log":                               "",
		"logs/default_web_u1/main/3.log":                               "",
		"logs/default_web_u1/main/2.log.20260101-000000":               "",
		"logs/default_web_u1/main/odd":                                 "",
		"pods/u1/volumes/kubernetes.io~configmap/settings/..1/version": "6",
		"pods/u1/volumes/kubernetes.io~configmap/settings/version":     "7",
		"pods/u2/etc-hosts":                                            "",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(t.Context(), lists{}, Places{
		Cgroups: filepath.Join(root, "cgroup"), Logs: filepath.Join(root, "logs"), Pods: filepath.Join(root, "pods"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &Census{
		Sandboxes:  []Sandbox{{ID: "s1", UID: "u1", Pod: "web", Attempt: 2, Ready: true}, {ID: "s2", UID: "u1", Pod: "web"}},
		Containers: []Container{{ID: "c1", Sandbox: "s1", UID: "u1", Pod: "web", Name: "main", Attempt: 3, State: "RUNNING"}},
		Alive:      map[string]string{"s1": "u1", "c1": "u1", "c2": "u2"},
		Runs:       map[string]map[string]int{"u1": {"main": 3}},
		Folders:    []string{"u1", "u2"},
		Files:      map[string]map[string]string{"u1": {"settings/version": "7"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("census (-want +got):\n%s", diff)
	}
}

// TestReadNothing is a board that has had no pod yet.
func TestReadNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "none")
	if _, err := Read(t.Context(), lists{}, Places{Cgroups: root, Logs: root, Pods: root}); err != nil {
		t.Error(err)
	}
}
