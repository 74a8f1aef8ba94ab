// Package conformance is the test suite that every implementation of
// container.Runtime passes: the fake, the cri driver with the fake, and the cri
// driver with a real runtime. It defines what the agent expects of a container
// runtime. Only tests import it.
package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/wait"
)

// Env is a runtime to test and the objects that the tests may use.
type Env struct {
	Runtime container.Runtime
	// Image is the name of a present image with BusyBox' sh, sleep, echo,
	// true and false.
	Image string
	// Absent is the name of an image that is neither present nor available from
	// a registry.
	Absent string
	// Removable is the name of a present image that the suite may remove; empty
	// if there is none.
	Removable string
	// LogRoot is a directory that the runtime may write logs to.
	LogRoot string
	// CgroupParent is the parent of the pods' cgroups; empty is the runtime's
	// default.
	CgroupParent string
	// Timeout is the timeout of steps that should take no time; 0 is ten
	// seconds.
	Timeout time.Duration
	// Parallel reports whether each part has a runtime of its own, so that all
	// parts may run at once.
	Parallel bool
	// Restart restarts the runtime and returns when it can be called again; nil
	// if the environment cannot.
	Restart func(t *testing.T)
	// OwnEvents reports whether the events do not come from what Restart restarts, so that
	// streams of events survive it.
	OwnEvents bool
	// Features is what the environment has for parts that examine containers from the inside;
	// nil for a runtime without processes.
	Features *Features
}

// Features are those of an environment with processes.
type Features struct {
	// PodNetwork reports whether pods can have a network of their own, with IPv4.
	PodNetwork bool
	// Configured is the name of a present image that is Image with the user app
	// (1234:2345, and in group 3456), the environment B=image and C=image, and the volume
	// /data with the file seed, which has mode 0750 and belongs to app; empty if there is
	// none.
	Configured string
	// ImageVolumes reports whether Configured can be a volume (KEP-4639).
	ImageVolumes bool
}

// Run tests the runtimes that newRuntime returns, one for each part. It removes
// the objects that the tests create.
func Run(t *testing.T, newRuntime func(t *testing.T) Env) {
	for _, part := range []struct {
		name string
		test func(*testEnv)
	}{
		{"node", testNode},
		{"images", testImages},
		{"image list", testImageList},
		{"image removal", testImageRemove},
		{"sandbox life", testSandboxLife},
		{"sandbox unknown", testSandboxUnknown},
		{"sandbox name is reserved", testSandboxReserved},
		{"container life", testContainerLife},
		{"container exit codes", testExitCodes},
		{"container unknown", testContainerUnknown},
		{"container cannot start", testCannotStart},
		{"container name is reserved", testContainerReserved},
		{"create needs a ready sandbox and an image", testCreateRefused},
		{"container resources are updated", testUpdateResources},
		{"stop signal is honoured", testStopHonoured},
		{"stop kills after grace", testStopKills},
		{"stop with no grace", testStopAtOnce},
		{"remove while running", testRemoveRunning},
		{"stop of the sandbox stops containers", testStopSandbox},
		{"removal of the sandbox removes containers", testRemoveSandbox},
		{"observe", testObserve},
		{"lists filter by pod", testListFilter},
		{"commands", testExec},
		{"command beyond its timeout", testExecTimeout},
		{"command and log need a running container", testExecRefused},
		{"log is reopened", testReopenLog},
		{"streamed commands", testStreamExec},
		{"streamed command with input", testStreamInput},
		{"attach", testAttach},
		{"port forward", testPortForward},
		{"streams need what runs", testStreamRefused},
		{"cancelled call", testCancelled},
		{"namespaces of a pod", testNamespaces},
		{"sysctls of the host are refused", testSysctlRefused},
		{"shared PID namespace", testSharedPID},
		{"PID namespace of another container", testTargetPID},
		{"PID namespace of the host", testHostPID},
		{"terminal", testTerminal},
		{"input for several clients", testStdin},
		{"input for one client", testStdinOnce},
		{"configuration of an image", testImageConfig},
		{"image as a volume", testImageVolume},
		{"user namespace", testUsers},
		{"OOM killer", testOOMKiller},
		{"events", testEvents},
		{"events after reconnect", testEventsReconnect},
		{"runtime restart", testRestart},
	} {
		t.Run(part.name, func(t *testing.T) {
			env := newRuntime(t)
			if env.Parallel {
				t.Parallel()
			}
			if env.Timeout == 0 {
				env.Timeout = 10 * time.Second
			}
			part.test(&testEnv{T: t, Env: env})
		})
	}
}

// testEnv is one test with its runtime.
type testEnv struct {
	*testing.T
	Env
}

// pod is a sandbox under test.
type pod struct {
	w      *testEnv
	uid    string
	id     string
	config *runtimeapi.PodSandboxConfig
}

// newPod describes a pod with a new UID. It is on the host network, so that the
// suite needs no CNI plugin. Such a pod must not set a hostname, because it
// shares the host's UTS namespace.
func (w *testEnv) newPod() *pod {
	w.Helper()
	uid := fmt.Sprintf("conformance-%x", time.Now().UnixNano())
	name := "conformance"
	return &pod{w: w, uid: uid, config: &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: uid},
		LogDirectory: filepath.Join(w.LogRoot, "default_"+name+"_"+uid),
		Labels: map[string]string{
			container.LabelPodName:      name,
			container.LabelPodNamespace: "default",
			container.LabelPodUID:       uid,
			"app":                       "conformance",
		},
		Annotations: map[string]string{"example.com/note": "kept as it is"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    w.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces()},
		},
	}}
}

func namespaces() *runtimeapi.NamespaceOption {
	return &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_NODE,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
		Ipc:     runtimeapi.NamespaceMode_POD,
	}
}

// runPod creates a ready sandbox, which is removed with the test.
func (w *testEnv) runPod() *pod {
	w.Helper()
	p := w.newPod()
	p.run()
	return p
}

func (p *pod) run() {
	p.w.Helper()
	id, err := p.w.Runtime.RunPodSandbox(p.w.Context(), p.config, "")
	p.w.ok("RunPodSandbox", err)
	if id == "" {
		p.w.Fatal("RunPodSandbox answered no ID")
	}
	p.id = id
	p.w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute+p.w.Timeout)
		defer cancel()
		if err := p.w.Runtime.StopPodSandbox(ctx, id); err != nil {
			p.w.Errorf("StopPodSandbox at the end: %v", err)
		}
		if err := p.w.Runtime.RemovePodSandbox(ctx, id); err != nil {
			p.w.Errorf("RemovePodSandbox at the end: %v", err)
		}
		os.RemoveAll(p.config.LogDirectory)
	})
}

// stop stops the sandbox, and waits until its status has the state. containerd sets it when it
// has seen the end of the sandbox' process, which can be after the response
// (startSandboxExitMonitor in internal/cri/server/events.go).
func (p *pod) stop() {
	p.w.Helper()
	p.w.ok("StopPodSandbox", p.w.Runtime.StopPodSandbox(p.w.Context(), p.id))
	p.w.eventually("state of the stopped sandbox", func() error {
		s, err := p.w.Runtime.PodSandboxStatus(p.w.Context(), p.id)
		if err == nil && s.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			err = fmt.Errorf("it is %v", s.GetState())
		}
		return err
	})
}

// containerConfig returns the config of a container that runs a shell script.
func (p *pod) containerConfig(name, script string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: p.w.Image},
		Command:  []string{"/bin/sh", "-c", script},
		LogPath:  name + "/0.log",
		Labels: map[string]string{
			container.LabelPodName:       p.config.GetMetadata().GetName(),
			container.LabelPodNamespace:  p.config.GetMetadata().GetNamespace(),
			container.LabelPodUID:        p.uid,
			container.LabelContainerName: name,
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: namespaces()},
		},
	}
}

func (p *pod) create(c *runtimeapi.ContainerConfig) string {
	p.w.Helper()
	id, err := p.w.Runtime.CreateContainer(p.w.Context(), p.id, c, p.config)
	p.w.ok("CreateContainer", err)
	if id == "" {
		p.w.Fatal("CreateContainer answered no ID")
	}
	return id
}

// start starts a container with a script and returns its ID.
func (p *pod) start(name, script string) string {
	p.w.Helper()
	id := p.create(p.containerConfig(name, script))
	p.w.ok("StartContainer", p.w.Runtime.StartContainer(p.w.Context(), id))
	return id
}

// runReady runs a pod with the container main, and waits for its line.
func (w *testEnv) runReady(script string) (p *pod, id string) {
	w.Helper()
	p = w.runPod()
	id = p.start("main", script)
	p.waitReady("main")
	return p, id
}

// unknownID is the ID of no object.
const unknownID = "0000000000000000000000000000000000000000000000000000000000000000"

// The scripts of the suite, which the fake supports, too.
const (
	scriptForever = `sleep 1000`
	scriptTrap    = `trap "exit 7" TERM; echo ready; sleep 1000 & wait`
	scriptReady   = `echo ready; sleep 1000`
)

// waitReady waits until the container has written its line: from then on its
// handlers are in place.
func (p *pod) waitReady(name string) {
	p.w.Helper()
	path := filepath.Join(p.config.GetLogDirectory(), name, "0.log")
	p.w.eventually("a log line of "+name, func() error {
		data, err := os.ReadFile(path)
		if err == nil && len(data) == 0 {
			err = fmt.Errorf("%s is empty", path)
		}
		return err
	})
}

func (w *testEnv) status(containerID string) *runtimeapi.ContainerStatus {
	w.Helper()
	s, err := w.Runtime.ContainerStatus(w.Context(), containerID)
	w.ok("ContainerStatus", err)
	return s
}

// waitExited waits until a container has exited.
func (w *testEnv) waitExited(containerID string) *runtimeapi.ContainerStatus {
	w.Helper()
	var s *runtimeapi.ContainerStatus
	w.eventually("the end of "+containerID, func() error {
		s = w.status(containerID)
		if s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("state is %v", s.GetState())
		}
		return nil
	})
	return s
}

// eventually polls until check passes.
func (w *testEnv) eventually(what string, check func() error) {
	w.Helper()
	deadline := time.Now().Add(w.Timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("waited %v for %s: %v", w.Timeout, what, err)
		}
		wait.Pause(w.Context(), 20*time.Millisecond)
	}
}

func (w *testEnv) ok(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}
