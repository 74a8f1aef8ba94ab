package conformance

import (
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

func testNode(w *testEnv) {
	version, err := w.Runtime.Version(w.Context())
	w.ok("Version", err)
	if version.GetRuntimeName() == "" || version.GetRuntimeVersion() == "" {
		w.Errorf("Version lacks a name or a version: %v", version)
	}
	status, err := w.Runtime.Status(w.Context())
	w.ok("Status", err)
	seen := map[string]bool{}
	for _, c := range status.GetStatus().GetConditions() {
		seen[c.GetType()] = true
	}
	if !seen[runtimeapi.RuntimeReady] || !seen[runtimeapi.NetworkReady] {
		w.Errorf("Status lacks RuntimeReady or NetworkReady: %v", status)
	}
	if _, err := w.Runtime.Info(w.Context()); err != nil {
		w.Errorf("Info: %v", err)
	}
	if _, err := w.Runtime.RuntimeConfig(w.Context()); err != nil && !errors.Is(err, container.ErrUnsupported) {
		w.Errorf("RuntimeConfig: %v", err)
	}
}

func testImages(w *testEnv) {
	img, err := w.Runtime.ImageStatus(w.Context(), &runtimeapi.ImageSpec{Image: w.Image})
	w.ok("ImageStatus", err)
	if img.GetId() == "" {
		w.Fatalf("image %q has no ID: is it present?", w.Image)
	}
	byID, err := w.Runtime.ImageStatus(w.Context(), &runtimeapi.ImageSpec{Image: img.GetId()})
	w.ok("ImageStatus by ID", err)
	if byID.GetId() != img.GetId() {
		w.Errorf("ImageStatus by ID is %q, want %q", byID.GetId(), img.GetId())
	}
	absent, err := w.Runtime.ImageStatus(w.Context(), &runtimeapi.ImageSpec{Image: w.Absent})
	if absent != nil || err != nil {
		w.Errorf("ImageStatus of an absent image is %v, %v; want nil, nil", absent, err)
	}
	if ref, err := w.Runtime.PullImage(w.Context(), &runtimeapi.ImageSpec{Image: w.Absent}, nil, nil); err == nil {
		w.Errorf("PullImage of %q answered %q", w.Absent, ref)
	}
}

func testSandboxLife(w *testEnv) {
	before := time.Now().Add(-time.Second)
	p := w.runPod()

	s, err := w.Runtime.PodSandboxStatus(w.Context(), p.id)
	w.ok("PodSandboxStatus", err)
	if s.GetId() != p.id || s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		w.Errorf("sandbox is %q, %v", s.GetId(), s.GetState())
	}
	if diff := cmp.Diff(p.config.GetLabels(), s.GetLabels()); diff != "" {
		w.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(p.config.GetAnnotations(), s.GetAnnotations()); diff != "" {
		w.Errorf("annotations (-want +got):\n%s", diff)
	}
	if m := s.GetMetadata(); m.GetUid() != p.uid || m.GetName() != "conformance" || m.GetNamespace() != "default" {
		w.Errorf("metadata is %v", m)
	}
	if at := time.Unix(0, s.GetCreatedAt()); at.Before(before) || at.After(time.Now().Add(time.Second)) {
		w.Errorf("created at %v", at)
	}

	for range 2 { // the second time is no error
		p.stop()
	}
	for range 2 {
		w.ok("RemovePodSandbox", w.Runtime.RemovePodSandbox(w.Context(), p.id))
		if _, err := w.Runtime.PodSandboxStatus(w.Context(), p.id); !errors.Is(err, container.ErrNotFound) {
			w.Errorf("PodSandboxStatus of a removed sandbox: %v, want ErrNotFound", err)
		}
	}
	w.ok("StopPodSandbox of a removed sandbox", w.Runtime.StopPodSandbox(w.Context(), p.id))

	// The name is free again.
	p.run()
}

func testSandboxUnknown(w *testEnv) {
	w.ok("StopPodSandbox of an unknown sandbox", w.Runtime.StopPodSandbox(w.Context(), unknownID))
	w.ok("RemovePodSandbox of an unknown sandbox", w.Runtime.RemovePodSandbox(w.Context(), unknownID))
	if _, err := w.Runtime.PodSandboxStatus(w.Context(), unknownID); !errors.Is(err, container.ErrNotFound) {
		w.Errorf("PodSandboxStatus: %v, want ErrNotFound", err)
	}
	c := w.newPod().containerConfig("main", scriptForever)
	if _, err := w.Runtime.CreateContainer(w.Context(), unknownID, c, w.newPod().config); !errors.Is(err, container.ErrNotFound) {
		w.Errorf("CreateContainer in an unknown sandbox: %v, want ErrNotFound", err)
	}
}

func testSandboxReserved(w *testEnv) {
	p := w.runPod()
	if id, err := w.Runtime.RunPodSandbox(w.Context(), p.config, ""); err == nil {
		w.Errorf("the same sandbox ran twice, as %q and %q", p.id, id)
		w.ok("RemovePodSandbox", w.Runtime.RemovePodSandbox(w.Context(), id))
	}
	p.config.Metadata.Attempt++
	p.run()
}

func testStopSandbox(w *testEnv) {
	p := w.runPod()
	id := p.start("main", scriptForever)
	w.ok("StopPodSandbox", w.Runtime.StopPodSandbox(w.Context(), p.id))
	if s := w.waitExited(id); s.GetExitCode() != 137 {
		w.Errorf("exit code is %d, want 137", s.GetExitCode())
	}
}

func testRemoveSandbox(w *testEnv) {
	p := w.runPod()
	running := p.start("running", scriptForever)
	created := p.create(p.containerConfig("created", scriptForever))
	w.ok("StopPodSandbox", w.Runtime.StopPodSandbox(w.Context(), p.id))
	w.ok("RemovePodSandbox", w.Runtime.RemovePodSandbox(w.Context(), p.id))
	for _, id := range []string{running, created} {
		if _, err := w.Runtime.ContainerStatus(w.Context(), id); !errors.Is(err, container.ErrNotFound) {
			w.Errorf("container %q after its sandbox: %v, want ErrNotFound", id, err)
		}
	}
	left, err := w.Runtime.ListContainers(w.Context(), &runtimeapi.ContainerFilter{LabelSelector: map[string]string{container.LabelPodUID: p.uid}})
	w.ok("ListContainers", err)
	if len(left) > 0 {
		w.Errorf("containers are left: %v", left)
	}
}
