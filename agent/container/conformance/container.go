package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

func testContainerLife(w *testEnv) {
	p := w.runPod()
	id := p.create(p.containerConfig("main", `sleep 1; exit 0`))
	s := w.status(id)
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED || s.GetStartedAt() > 0 || s.GetFinishedAt() > 0 {
		w.Errorf("created container is %v, started %d, finished %d", s.GetState(), s.GetStartedAt(), s.GetFinishedAt())
	}
	if s.GetCreatedAt() <= 0 {
		w.Errorf("created container has no creation time")
	}
	w.ok("StopContainer of a created container", w.Runtime.StopContainer(w.Context(), id, time.Second))

	w.ok("StartContainer", w.Runtime.StartContainer(w.Context(), id))
	s = w.status(id)
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || s.GetStartedAt() < s.GetCreatedAt() || s.GetFinishedAt() > 0 {
		w.Errorf("started container is %v, started %d, finished %d", s.GetState(), s.GetStartedAt(), s.GetFinishedAt())
	}
	if err := w.Runtime.StartContainer(w.Context(), id); err == nil {
		w.Error("a running container was started again")
	}

	s = w.waitExited(id)
	if s.GetExitCode() != 0 || s.GetReason() != "Completed" || s.GetFinishedAt() <= s.GetStartedAt() || s.GetStartedAt() < s.GetCreatedAt() {
		w.Errorf("ended container: code %d, reason %q, created %d, started %d, finished %d",
			s.GetExitCode(), s.GetReason(), s.GetCreatedAt(), s.GetStartedAt(), s.GetFinishedAt())
	}
	if err := w.Runtime.StartContainer(w.Context(), id); err == nil {
		w.Error("an ended container was started again")
	}
	w.ok("StopContainer of an ended container", w.Runtime.StopContainer(w.Context(), id, time.Second))
	for range 2 { // the second time is no error
		w.ok("RemoveContainer", w.Runtime.RemoveContainer(w.Context(), id))
		if _, err := w.Runtime.ContainerStatus(w.Context(), id); !errors.Is(err, container.ErrNotFound) {
			w.Errorf("ContainerStatus of a removed container: %v, want ErrNotFound", err)
		}
	}
}

func testExitCodes(w *testEnv) {
	p := w.runPod()
	ids := map[int32]string{}
	for _, code := range []int32{0, 1, 3, 255} {
		ids[code] = p.start(fmt.Sprintf("exit-%d", code), fmt.Sprintf("exit %d", code))
	}
	for code, id := range ids {
		want := "Error"
		if code == 0 {
			want = "Completed"
		}
		if s := w.waitExited(id); s.GetExitCode() != code || s.GetReason() != want {
			w.Errorf("exit %d: code %d, reason %q, want %q", code, s.GetExitCode(), s.GetReason(), want)
		}
	}
}

func testContainerUnknown(w *testEnv) {
	w.ok("StopContainer of an unknown container", w.Runtime.StopContainer(w.Context(), unknownID, time.Second))
	w.ok("RemoveContainer of an unknown container", w.Runtime.RemoveContainer(w.Context(), unknownID))
	if _, err := w.Runtime.ContainerStatus(w.Context(), unknownID); !errors.Is(err, container.ErrNotFound) {
		w.Errorf("ContainerStatus: %v, want ErrNotFound", err)
	}
	if err := w.Runtime.StartContainer(w.Context(), unknownID); !errors.Is(err, container.ErrNotFound) {
		w.Errorf("StartContainer: %v, want ErrNotFound", err)
	}
	if err := w.Runtime.UpdateContainerResources(w.Context(), unknownID, &runtimeapi.LinuxContainerResources{CpuShares: 2}); !errors.Is(err, container.ErrNotFound) {
		w.Errorf("UpdateContainerResources: %v, want ErrNotFound", err)
	}
}

// testUpdateResources changes CPU limits only: the effect of a memory limit
// depends on the kernel's swap accounting.
func testUpdateResources(w *testEnv) {
	p := w.runPod()
	c := p.containerConfig("main", scriptForever)
	c.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: 50_000, CpuShares: 512}
	id := p.create(c)
	has := func(when string, quota, shares int64) {
		w.Helper()
		r := w.status(id).GetResources().GetLinux()
		if r.GetCpuPeriod() != 100_000 || r.GetCpuQuota() != quota || r.GetCpuShares() != shares {
			w.Errorf("%s: %v, want quota %d and shares %d in 100000", when, r, quota, shares)
		}
	}
	update := func(r *runtimeapi.LinuxContainerResources) {
		w.Helper()
		w.ok("UpdateContainerResources", w.Runtime.UpdateContainerResources(w.Context(), id, r))
	}
	has("created", 50_000, 512)
	update(&runtimeapi.LinuxContainerResources{CpuQuota: 60_000})
	has("updated before its start", 60_000, 512)
	w.ok("StartContainer", w.Runtime.StartContainer(w.Context(), id))
	update(&runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: 70_000, CpuShares: 1024})
	has("updated while it runs", 70_000, 1024)
	if s := w.status(id); s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		w.Errorf("the updated container is %v", s.GetState())
	}
}

func testCannotStart(w *testEnv) {
	p := w.runPod()
	c := p.containerConfig("main", "")
	c.Command = []string{"/no/such/program"}
	id := p.create(c)
	if err := w.Runtime.StartContainer(w.Context(), id); err == nil {
		w.Fatal("a program that does not exist was started")
	}
	s := w.waitExited(id)
	if s.GetExitCode() == 0 || s.GetReason() == "Completed" || s.GetStartedAt() > 0 || s.GetFinishedAt() <= 0 {
		w.Errorf("container: code %d, reason %q, started %d, finished %d",
			s.GetExitCode(), s.GetReason(), s.GetStartedAt(), s.GetFinishedAt())
	}
}

func testContainerReserved(w *testEnv) {
	p := w.runPod()
	c := p.containerConfig("main", scriptForever)
	first := p.create(c)
	if id, err := w.Runtime.CreateContainer(w.Context(), p.id, c, p.config); err == nil {
		w.Errorf("the same container was created twice, as %q and %q", first, id)
	}
	c.Metadata.Attempt++
	p.create(c)
}

func testCreateRefused(w *testEnv) {
	p := w.runPod()
	c := p.containerConfig("main", scriptForever)
	c.Image.Image = w.Absent
	if id, err := w.Runtime.CreateContainer(w.Context(), p.id, c, p.config); err == nil {
		w.Errorf("a container of an absent image was created as %q", id)
	}
	created := p.create(p.containerConfig("early", scriptForever))
	p.stop()
	// containerd 2.0 creates it, but does not start it.
	if id, err := w.Runtime.CreateContainer(w.Context(), p.id, p.containerConfig("late", scriptForever), p.config); err == nil {
		if err := w.Runtime.StartContainer(w.Context(), id); err == nil {
			w.Errorf("container %q was created and started in a stopped sandbox", id)
		}
	}
	if err := w.Runtime.StartContainer(w.Context(), created); err == nil {
		w.Error("a container was started in a stopped sandbox")
	}
}

func testStopHonoured(w *testEnv) {
	_, id := w.runReady(scriptTrap)
	grace := w.Timeout + 30*time.Second
	begun := time.Now()
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), id, grace))
	if took := time.Since(begun); took >= grace {
		w.Errorf("the stop took %v, the whole grace period", took)
	}
	s := w.status(id)
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 7 {
		w.Errorf("container is %v with code %d, want exited with 7", s.GetState(), s.GetExitCode())
	}
}

func testStopKills(w *testEnv) {
	_, id := w.runReady(scriptReady) // no handler: PID 1 ignores the signal
	const grace = 1500 * time.Millisecond
	begun := time.Now()
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), id, grace))
	if took := time.Since(begun); took < grace {
		w.Errorf("the stop took %v, less than the grace period of %v", took, grace)
	}
	s := w.status(id)
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 137 {
		w.Errorf("container is %v with code %d, want exited with 137", s.GetState(), s.GetExitCode())
	}
}

func testStopAtOnce(w *testEnv) {
	_, id := w.runReady(scriptTrap)
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), id, 0))
	if s := w.waitExited(id); s.GetExitCode() != 137 {
		w.Errorf("exit code is %d, want 137: no grace is no signal", s.GetExitCode())
	}
}

func testRemoveRunning(w *testEnv) {
	p := w.runPod()
	id := p.start("main", scriptForever)
	w.ok("RemoveContainer", w.Runtime.RemoveContainer(w.Context(), id))
	if _, err := w.Runtime.ContainerStatus(w.Context(), id); !errors.Is(err, container.ErrNotFound) {
		w.Errorf("ContainerStatus: %v, want ErrNotFound", err)
	}
}

func testCancelled(w *testEnv) {
	p := w.runPod()
	ctx, cancel := context.WithCancel(w.Context())
	cancel()
	if _, err := w.Runtime.PodSandboxStatus(ctx, p.id); !errors.Is(err, context.Canceled) {
		w.Errorf("a call with a cancelled context: %v, want context.Canceled", err)
	}

	id := p.start("main", scriptReady)
	p.waitReady("main")
	ctx, cancel = context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	err := w.Runtime.StopContainer(ctx, id, time.Hour)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, container.ErrTimeout) {
		w.Errorf("a stop beyond the caller's deadline: %v, want ErrTimeout and context.DeadlineExceeded", err)
	}
	// A later stop with less grace takes effect.
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), id, time.Second))
	w.waitExited(id)
}
