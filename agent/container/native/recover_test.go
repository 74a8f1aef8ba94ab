package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/native/keeper"
	"github.com/tinylet/tinylet/agent/wait"
)

// podConfig is a pod with all namespaces of its own.
func podConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}, Hostname: name, LogDirectory: "/var/log/pods/recovery-" + name,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    "/recovery",
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}},
		},
	}
}

func (e *testEnv) create(t *testing.T, d *Driver, sandbox, name, script string) string {
	t.Helper()
	id, err := d.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: e.image}, Command: []string{"/bin/sh", "-c", script}, LogPath: name + ".log",
		Stdin: true, StdinOnce: true,
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD},
		}},
	}, podConfig("pod"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (e *testEnv) start(t *testing.T, d *Driver, sandbox, name, script string) string {
	t.Helper()
	id := e.create(t, d, sandbox, name, script)
	if err := d.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func status(t *testing.T, d *Driver, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	s, err := d.ContainerStatus(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (e *testEnv) exited(t *testing.T, d *Driver, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e.patience)
	defer cancel()
	for {
		if s := status(t, d, id); s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return s
		}
		if !wait.Pause(ctx, 20*time.Millisecond) {
			t.Fatalf("container %s does not end", id)
		}
	}
}

// TestRecovery starts a second driver where the first one has ended: it has all sandboxes and
// containers, and the ends that nobody has seen. Then it starts one as after a reboot. When all
// is removed, nothing is left.
func TestRecovery(t *testing.T) {
	e := newEnv(t)
	netns := existing(t, "/run/netns")
	var sandbox, runs, ends, ended, created, interrupted string
	var before *runtimeapi.ContainerStatus
	t.Run("first driver", func(t *testing.T) {
		d := e.newDriver(t)
		var err error
		if sandbox, err = d.RunPodSandbox(t.Context(), podConfig("pod"), ""); err != nil {
			t.Fatal(err)
		}
		ended = e.start(t, d, sandbox, "ended", "exit 4")
		e.exited(t, d, ended)
		runs, created = e.start(t, d, sandbox, "runs", "sleep 1000"), e.create(t, d, sandbox, "created", "sleep 1000")
		ends = e.start(t, d, sandbox, "ends", "sleep 1; exit 5")
		interrupted = e.create(t, d, sandbox, "interrupted", "sleep 1000")
		before = status(t, d, runs)
	})
	if err := os.Remove(filepath.Join(e.dir, "driver", "containers", interrupted, fileState)); err != nil { // written last
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	t.Run("second driver", func(t *testing.T) {
		d := e.newDriver(t)
		if s, err := d.PodSandboxStatus(t.Context(), sandbox); err != nil || s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || s.GetNetwork().GetIp() == "" {
			t.Errorf("sandbox: %v, %v", s, err)
		}
		if diff := cmp.Diff(before, status(t, d, runs), protocmp.Transform()); diff != "" {
			t.Errorf("status of the container that runs (-first +second driver):\n%s", diff)
		}
		if c := d.findContainer(runs); !c.stdin || !c.stdinOnce {
			t.Error("the container has no input for one client any longer")
		}
		for id, code := range map[string]int32{ended: 4, ends: 5} {
			if s := e.exited(t, d, id); s.GetExitCode() != code || s.GetReason() != "Error" || s.GetFinishedAt() == 0 {
				t.Errorf("ended container: code %d, want %d, reason %q", s.GetExitCode(), code, s.GetReason())
			}
		}
		if _, err := d.ContainerStatus(t.Context(), interrupted); !errors.Is(err, container.ErrNotFound) {
			t.Errorf("container whose creation was interrupted: %v", err)
		}
		e.create(t, d, sandbox, "interrupted", "sleep 1000") // its name is free
		if err := d.StartContainer(t.Context(), created); err != nil {
			t.Error(err)
		}
		if out, _, code, err := d.ExecSync(t.Context(), runs, []string{"hostname"}, e.patience); string(out) != "pod\n" || code != 0 || err != nil {
			t.Errorf("a command: %q, %d, %v", out, code, err)
		}
		if _, err := d.RunPodSandbox(t.Context(), podConfig("pod"), ""); err == nil {
			t.Error("the name of the sandbox is not reserved")
		}

		e.killKeeper(t)
		if diff := cmp.Diff(before, status(t, d, runs), protocmp.Transform()); diff != "" {
			t.Errorf("status of the container that runs (-before +after the keeper was killed):\n%s", diff)
		}
		if err := d.StopContainer(t.Context(), created, 0); err != nil {
			t.Error(err)
		}
		if s := e.exited(t, d, created); s.GetExitCode() != 137 && s.GetReason() != "Unknown" { // known from Linux 6.15 on
			t.Errorf("the container that was killed has code %d, %q", s.GetExitCode(), s.GetReason())
		}
		if s := e.exited(t, d, e.start(t, d, sandbox, "after", "exit 6")); s.GetExitCode() != 6 {
			t.Errorf("the container of the next keeper has code %d, want 6", s.GetExitCode())
		}
	})
	e.reboot(t)
	t.Run("after a reboot", func(t *testing.T) {
		d := e.newDriver(t)
		if s, err := d.PodSandboxStatus(t.Context(), sandbox); err != nil || s.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("sandbox: %v, %v", s, err)
		}
		for id, want := range map[string]string{runs: "255 Unknown", ended: "4 Error", ends: "5 Error"} {
			s := status(t, d, id)
			if got := fmt.Sprint(s.GetExitCode(), " ", s.GetReason()); got != want || s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
				t.Errorf("container %s is %s with %s, want %s", s.GetMetadata().GetName(), s.GetState(), got, want)
			}
		}
		if err := d.RemovePodSandbox(t.Context(), sandbox); err != nil {
			t.Error(err)
		}
		e.empty(t, d, netns)
	})
}

// killKeeper kills the keeper, and waits for the next one.
func (e *testEnv) killKeeper(t *testing.T) {
	t.Helper()
	hello, err := e.keeper.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(hello.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), e.patience)
	defer cancel()
	for {
		if now, err := e.keeper.Hello(ctx); err == nil && now.PID != hello.PID {
			return
		}
		if !wait.Pause(ctx, 10*time.Millisecond) {
			t.Fatal("no other keeper runs")
		}
	}
}

// reboot ends all containers, and removes what does not survive a reboot.
func (e *testEnv) reboot(t *testing.T) {
	t.Helper()
	list, err := e.keeper.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range list {
		if err := deleteContainer(t.Context(), Handler{Program: e.program}, k.ID); err != nil {
			t.Fatal(err)
		}
		for k.Phase != keeper.PhaseExited {
			time.Sleep(20 * time.Millisecond)
			now, err := e.keeper.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range now {
				if n.ID == k.ID {
					k = n
				}
			}
		}
		if err := e.keeper.Acknowledge(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
	}
	unmountBelow(t, e.dir)
	for _, dir := range []string{"driver", "network"} {
		if err := os.RemoveAll(filepath.Join(e.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// empty requires that nothing of the driver is left.
func (e *testEnv) empty(t *testing.T, d *Driver, netns string) {
	t.Helper()
	records, err := d.Store.Records(t.Context())
	if err != nil || len(records) > 0 {
		t.Errorf("records: %v, %v", records, err)
	}
	snapshots, err := d.Store.Snapshots(t.Context())
	if err != nil || len(snapshots) > 0 {
		t.Errorf("snapshots: %v, %v", snapshots, err)
	}
	kept, err := e.keeper.List(t.Context())
	if err != nil || len(kept) > 0 {
		t.Errorf("containers of the keeper: %v, %v", kept, err)
	}
	for _, dir := range []string{"sandboxes", "containers", "exec"} {
		if got := existing(t, filepath.Join(e.dir, "driver", dir)); got != "" {
			t.Errorf("in %s: %s", dir, got)
		}
	}
	if got := existing(t, e.volumes); got != "" {
		t.Errorf("volumes: %s", got)
	}
	if got := existing(t, "/run/netns"); got != netns {
		t.Errorf("network namespaces: %q, want %q", got, netns)
	}
	if got := mountsBelow(t, filepath.Join(e.dir, "driver")+"/"); len(got) > 0 {
		t.Errorf("mounts: %v", got)
	}
	if got := existing(t, "/sys/fs/cgroup/recovery"); strings.Contains(got, "/") {
		t.Errorf("cgroups: %s", got)
	}
}

// existing lists the directories and files in a directory.
func existing(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// mountsBelow returns the mounts whose path has a prefix, the newest first.
func mountsBelow(t *testing.T, prefix string) []string {
	t.Helper()
	all, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return !strings.HasPrefix(m.Mountpoint, prefix), false })
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range slices.Backward(all) {
		out = append(out, m.Mountpoint)
	}
	return out
}

func unmountBelow(t *testing.T, prefix string) {
	t.Helper()
	for _, path := range mountsBelow(t, prefix) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Fatalf("unmount %s: %v", path, err)
		}
	}
}
