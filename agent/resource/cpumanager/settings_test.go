package cpumanager

import (
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/cgroups"
)

func TestThePolicyNoneIsNothing(t *testing.T) {
	m, err := New(Config{Kubelet: &kubelet.KubeletConfiguration{CPUManagerPolicy: "none"}, Root: "/nowhere"})
	if m != nil || err != nil {
		t.Fatalf("%v, %v", m, err)
	}
	p := &v1.Pod{}
	if err := m.Allocate(t.Context(), p); err != nil || m.CPUSet("u", "c") != "" || m.IgnoresQuota("u", "") {
		t.Error("it does something")
	}
	m.Release("u")
	m.WriteMetrics(nil)
}

func TestAKernelWithoutCpusets(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "cgroup.controllers"), "cpu memory pids\n")
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	k := kubelet.KubeletConfiguration{CPUManagerPolicy: "static", ReservedSystemCPUs: "0"}
	if _, err := New(Config{Kubelet: &k, Root: machine(t, "0-3", nil), Tree: tree}); !errors.Is(err, cgroups.ErrController) {
		t.Errorf("error %v", err)
	}
}

func TestSettings(t *testing.T) {
	for name, test := range map[string]struct {
		k        kubelet.KubeletConfiguration
		online   string
		siblings map[int]string
		reserved string
		err      string
	}{
		"named CPUs":         {k: kubelet.KubeletConfiguration{ReservedSystemCPUs: "1,3"}, online: "0-3", reserved: "1,3"},
		"a part of a CPU":    {k: kubelet.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "100m"}, SystemReserved: map[string]string{"cpu": "1"}}, online: "0-3", reserved: "0-1"},
		"cores with threads": {k: kubelet.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "2"}}, online: "0-3", siblings: map[int]string{0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, reserved: "0,2"},
		"a thread offline":   {k: kubelet.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "1"}}, online: "1-3", siblings: map[int]string{1: "1,3", 2: "0,2", 3: "1,3"}, reserved: "2"},
		"nothing reserved":   {online: "0-3", err: "set reservedSystemCPUs"},
		"not online":         {k: kubelet.KubeletConfiguration{ReservedSystemCPUs: "4"}, online: "0-3", err: "CPU 4 is not online"},
		"more than there is": {k: kubelet.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "5"}}, online: "0-3", err: "reserve less"},
		"option":             {k: kubelet.KubeletConfiguration{ReservedSystemCPUs: "0", CPUManagerPolicyOptions: map[string]string{"align-by-socket": "true"}}, online: "0-3", err: `"align-by-socket" is not supported`},
		"bad list":           {k: kubelet.KubeletConfiguration{ReservedSystemCPUs: "3-1"}, online: "0-3", err: "reservedSystemCPUs"},
		"unreadable":         {k: kubelet.KubeletConfiguration{ReservedSystemCPUs: "0"}, online: "x", err: "read online CPUs"},
		"unreadable core":    {k: kubelet.KubeletConfiguration{ReservedSystemCPUs: "0"}, online: "0", siblings: map[int]string{0: "x"}, err: "core of CPU 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := readSettings(&test.k, machine(t, test.online, test.siblings))
			switch {
			case test.err != "":
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
			case err != nil:
				t.Error(err)
			case s.reserved.String() != test.reserved:
				t.Errorf("%s is reserved, want %s", s.reserved, test.reserved)
			}
		})
	}
}

func TestReserve(t *testing.T) {
	k := kubelet.KubeletConfiguration{
		ReservedSystemCPUs: "0,2", KubeReserved: map[string]string{"cpu": "1", "memory": "1Mi"}, SystemReserved: map[string]string{"cpu": "3", "pid": "9"},
	}
	before := maps.Clone(k.KubeReserved)
	kube := k.KubeReserved
	for range 2 { // also of what it has done
		if err := Reserve(&k); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(k.KubeReserved, map[string]string{"memory": "1Mi"}) || !maps.Equal(k.SystemReserved, map[string]string{"cpu": "2", "pid": "9"}) {
			t.Errorf("kubeReserved %v, systemReserved %v", k.KubeReserved, k.SystemReserved)
		}
	}
	if !maps.Equal(kube, before) {
		t.Error("the caller's map was changed")
	}
	none := kubelet.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "1"}}
	if err := Reserve(&none); err != nil || none.KubeReserved["cpu"] != "1" {
		t.Errorf("%v, %v", none.KubeReserved, err)
	}
	if err := Reserve(&kubelet.KubeletConfiguration{ReservedSystemCPUs: "x"}); err == nil {
		t.Error("no error for a bad list")
	}
}
