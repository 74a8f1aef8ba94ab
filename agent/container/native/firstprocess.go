package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/native/keeper"
	"github.com/tinylet/tinylet/agent/container/native/oci"
	"github.com/tinylet/tinylet/agent/container/native/pause"
	"github.com/tinylet/tinylet/agent/container/native/sandbox"
	"github.com/tinylet/tinylet/agent/container/native/spec"
	"github.com/tinylet/tinylet/agent/container/native/store"
)

// firstProcess is the first process of the PID namespace that the containers of a pod share.
// It is a container of the keeper with the ID of the sandbox. When it ends, the kernel kills
// all processes of the namespace, and the sandbox is no longer ready.
type firstProcess struct {
	process oci.Process
	ended   chan struct{} // closed when it has ended; nil before its start
}

const pauseFile = "pause"

// pauseUser is the user of the process, as of upstream's image.
const pauseUser = 65535

// oomScoreAdj is that of a sandbox' process with the kubelet.
const oomScoreAdj = -998

func (d *Driver) firstBundle(id string) string {
	return filepath.Join(d.sandboxDir(id), dirBundle)
}

// startFirst starts the first process, and pins its PID namespace.
func (d *Driver) startFirst(ctx context.Context, s *podSandbox, namespaces *sandbox.Config) error {
	bundle := d.firstBundle(s.id)
	root := filepath.Join(bundle, dirRoot)
	program, err := pause.Program(runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o711); err != nil {
		return fmt.Errorf("start first process: %w", err)
	}
	if err := os.WriteFile(filepath.Join(root, pauseFile), program, 0o755); err != nil {
		return fmt.Errorf("start first process: %w", err)
	}
	// The OCI runtime makes the mount points as root of the pod's user namespace.
	if m := idMap(s.config); m != (store.IDMap{}) {
		if err := os.Chown(root, int(m.UIDs.HostID), int(m.GIDs.HostID)); err != nil {
			return fmt.Errorf("start first process: %w", err)
		}
	}
	handler := d.Handlers[s.handler]
	built, err := spec.Build(d.firstConfig(s, namespaces, handler))
	if err != nil {
		return err
	}
	if err := writeConfig(bundle, built); err != nil {
		return err
	}
	s.mu.Lock()
	s.first.ended = make(chan struct{})
	s.mu.Unlock()
	d.mu.Lock()
	d.firsts[s.id] = s
	d.mu.Unlock()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	started, err := d.Keeper.Start(limited, &keeper.Start{ID: s.id, Program: handler.Program, Bundle: bundle})
	if err != nil {
		d.forgetFirst(s)
		return errors.Join(keeperError(err), deleteContainer(limited, handler, s.id))
	}
	process := oci.Process{PID: started.PID, StartTime: started.StartTime}
	s.mu.Lock()
	s.first.process = process
	s.mu.Unlock()
	return sandbox.PinPID(namespaces.Paths().PID, process)
}

// firstConfig is the input of the process' spec: no capability, no file but the program.
func (d *Driver) firstConfig(s *podSandbox, namespaces *sandbox.Config, h Handler) *spec.Container {
	options := s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	paths := namespaces.Paths()
	return &spec.Container{
		ID: s.id, SandboxID: s.id, Sandbox: s.config, Image: new(ocispec.ImageConfig),
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: pauseFile},
			Command:  []string{"/" + pauseFile},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{OomScoreAdj: oomScoreAdj},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					RunAsUser: &runtimeapi.Int64Value{Value: pauseUser}, RunAsGroup: &runtimeapi.Int64Value{Value: pauseUser},
					ReadonlyRootfs: true, NoNewPrivs: true, Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}},
					Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
					NamespaceOptions: &runtimeapi.NamespaceOption{
						Network: options.GetNetwork(), Ipc: options.GetIpc(), Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: options.GetUsernsOptions(),
					},
				},
			},
		},
		Namespaces: spec.Namespaces{Network: paths.Net, IPC: paths.IPC, UTS: paths.UTS, User: paths.User}, Handler: h.Features, Node: d.Node,
	}
}

// stopFirst kills the first process, and waits until it has ended.
func (d *Driver) stopFirst(ctx context.Context, s *podSandbox) error {
	s.mu.Lock()
	first := s.first
	s.mu.Unlock()
	if first.ended == nil {
		return nil
	}
	if err := first.process.Kill(); err != nil {
		return err
	}
	select {
	case <-first.ended:
		d.forgetFirst(s)
		return nil
	case <-ctx.Done():
		return cancelled(ctx)
	}
}

func (d *Driver) forgetFirst(s *podSandbox) {
	s.mu.Lock()
	s.first = firstProcess{}
	s.mu.Unlock()
	d.mu.Lock()
	delete(d.firsts, s.id)
	d.mu.Unlock()
}

// firstEnded handles the end of a sandbox' first process.
func (d *Driver) firstEnded(ctx context.Context, s *podSandbox) error {
	if err := deleteContainer(ctx, d.Handlers[s.handler], s.id); err != nil {
		return err
	}
	s.mu.Lock()
	if s.first.ended != nil {
		select {
		case <-s.first.ended:
		default:
			close(s.first.ended)
		}
	}
	was := s.ready
	s.ready = false
	s.mu.Unlock()
	if !was {
		return nil
	}
	if err := s.save(d); err != nil {
		return err
	}
	d.emit(s, s.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return nil
}
