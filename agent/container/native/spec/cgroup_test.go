package spec

import "testing"

func TestCgroup(t *testing.T) {
	for parent, want := range map[string]struct{ path, dir, parent string }{
		"":                 {"/k8s.io/c1", "/k8s.io/c1", "/k8s.io"},
		"/kubepods/pod1":   {"/kubepods/pod1/c1", "/kubepods/pod1/c1", "/kubepods/pod1"},
		"kubepods/../pod1": {"/pod1/c1", "/pod1/c1", "/pod1"},
		"system.slice":     {"system.slice:cri-containerd:c1", "/system.slice/cri-containerd-c1.scope", "/system.slice"},
		"/kubepods.slice/kubepods-pod1_2.slice": {
			"kubepods-pod1_2.slice:cri-containerd:c1", "/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-c1.scope", "/kubepods.slice/kubepods-pod1_2.slice",
		},
		"a-b-c.slice": {"a-b-c.slice:cri-containerd:c1", "/a.slice/a-b.slice/a-b-c.slice/cri-containerd-c1.scope", "/a.slice/a-b.slice/a-b-c.slice"},
		"-.slice":     {"-.slice:cri-containerd:c1", "/cri-containerd-c1.scope", "/"},
	} {
		if got := cgroupsPath(parent, "c1"); got != want.path {
			t.Errorf("%q: linux.cgroupsPath %q, want %q", parent, got, want.path)
		}
		if got := ContainerCgroup(parent, "c1"); got != want.dir {
			t.Errorf("%q: cgroup %q, want %q", parent, got, want.dir)
		}
		if got := ParentCgroup(parent); got != want.parent {
			t.Errorf("%q: parent %q, want %q", parent, got, want.parent)
		}
	}
}
