package nodeinfo

import (
	"errors"
	"os"
	goruntime "runtime"
	"testing"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/fake"
)

// What a container without a limit is held back before is the memory without
// what is reserved, whatever eviction keeps free and whatever is enforced.
func TestUnreservedMemory(t *testing.T) {
	for _, enforce := range [][]string{{"pods"}, {"none"}} {
		kubelet, tinylet := config.Default()
		cfg := &config.Config{Kubelet: kubelet, Tinylet: tinylet, Paths: config.Paths{Root: t.TempDir()}}
		k := &cfg.Kubelet
		k.EnforceNodeAllocatable = enforce
		k.KubeReserved, k.SystemReserved = map[string]string{"memory": "5Mi"}, map[string]string{"memory": "7Mi"}
		k.EvictionHard = map[string]string{"memory.available": "9Mi"}
		facts, err := New(cfg, fake.New(fake.Config{}), nil)
		if err != nil {
			t.Fatal(err)
		}
		facts.seLinux = true
		n := facts.WithDriver(criconfig.DriverCgroupfs)
		if !n.SELinux {
			t.Error("volumes are not relabelled")
		}
		if got, want := n.MemoryUnreserved, n.MemoryCapacity-12<<20; got != want {
			t.Errorf("%v: %d bytes are not reserved, want %d", enforce, got, want)
		}
		if got, want := n.Allocatable.Memory().Value(), n.MemoryUnreserved-9<<20; got > want {
			t.Errorf("%v: %d bytes are allocatable, want %d", enforce, got, want)
		}
	}
}

// Admission allowed maxPods, although the Node object listed fewer for podsPerCore.
func TestPodsPerCore(t *testing.T) {
	kubelet, tinylet := config.Default()
	kubelet.MaxPods, kubelet.PodsPerCore = 10000, 1
	n, err := New(&config.Config{Kubelet: kubelet, Tinylet: tinylet, Paths: config.Paths{Root: t.TempDir()}}, fake.New(fake.Config{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := n.Admission()
	if want := goruntime.NumCPU(); a.MaxPods != want || a.Allocatable.Pods().Value() != int64(want) {
		t.Errorf("maximum %d, allocatable %s, want %d", a.MaxPods, a.Allocatable.Pods(), want)
	}
}

// A runtime that uses systemd needs systemd as the init system.
func TestSystemdMissing(t *testing.T) {
	for _, tc := range []struct {
		driver        string
		systemd, want bool
	}{
		{criconfig.DriverCgroupfs, false, false},
		{criconfig.DriverSystemd, true, false},
		{criconfig.DriverSystemd, false, true},
	} {
		n := &Info{systemd: tc.systemd}
		if n.SystemdMissing() {
			t.Errorf("%+v: missing before the runtime has answered", tc)
		}
		n.runtimeInfo.Store(&runtimeInfo{cgroupDriver: tc.driver})
		if n.SystemdMissing() != tc.want {
			t.Errorf("%+v: missing %v", tc, n.SystemdMissing())
		}
	}
}

// Volumes were never relabelled, because nothing read whether the kernel has SELinux.
func TestSELinux(t *testing.T) {
	for label, enabled := range map[string]bool{"system_u:system_r:init_t:s0\x00": true, "kernel\x00": false} {
		root := t.TempDir()
		if err := errors.Join(os.MkdirAll(root+"/proc/self/attr", 0o700), os.MkdirAll(root+"/sys/fs/selinux", 0o700)); err != nil {
			t.Fatal(err)
		}
		if seLinux(root) {
			t.Error("enabled without a label of the process")
		}
		if err := os.WriteFile(root+"/proc/self/attr/current", []byte(label), 0o600); err != nil {
			t.Fatal(err)
		}
		if seLinux(root) {
			t.Error("enabled without selinuxfs")
		}
		if err := os.WriteFile(root+"/sys/fs/selinux/enforce", []byte("1"), 0o600); err != nil {
			t.Fatal(err)
		}
		if seLinux(root) != enabled {
			t.Errorf("label %q: enabled is not %t", label, enabled)
		}
	}
}
