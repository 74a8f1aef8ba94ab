package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/sys/signal"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/native/keeper"
	"github.com/tinylet/tinylet/agent/container/native/oci"
	"github.com/tinylet/tinylet/agent/container/native/sandbox"
	"github.com/tinylet/tinylet/agent/container/native/spec"
	"github.com/tinylet/tinylet/agent/container/native/store"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/cgroups"
)

// podContainer is a container.
type podContainer struct {
	turn      turn
	id        string
	sandboxID string
	name      string // the reserved one
	created   time.Time
	signal    string // that stops it, "" for SIGTERM
	// stdin reports whether the container has a standard input, and stdinOnce whether that
	// ends with its first client.
	stdin, stdinOnce bool

	mu     sync.Mutex
	status *runtimeapi.ContainerStatus // replaced, not modified
	pid    oci.Process                 // of the first process, while it runs
	ended  chan struct{}               // closed when it has ended; nil before its start
	exit   *store.Exit                 // its end as observed first: a repeated call does not find its cgroup
	watch  *cgroups.Watch              // for the OOM killer, while it runs; may be nil

	oomKilled atomic.Bool // as the watch has seen
}

// containerState is what a container has until the next boot.
type containerState struct {
	Status    json.RawMessage `json:"status"` // runtimeapi.ContainerStatus
	Signal    string          `json:"signal,omitempty"`
	Stdin     bool            `json:"stdin,omitempty"`
	StdinOnce bool            `json:"stdinOnce,omitempty"`
	Started   bool            `json:"started"` // the keeper was asked to start it
}

// Files of a container.
const (
	dirBundle   = "bundle"
	dirRoot     = "rootfs" // in the bundle
	fileConfig  = "config.json"
	fileProcess = "process.json"
)

func (d *Driver) bundle(id string) string { return filepath.Join(d.containerDir(id), dirBundle) }
func (d *Driver) root(id string) string   { return filepath.Join(d.bundle(id), dirRoot) }

// maxConfig bounds a config.json in bytes.
const maxConfig = 8 << 20

// CreateContainer implements container.Containers.
func (d *Driver) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
	s, err := d.sandbox(sandboxID)
	if err != nil {
		return "", fmt.Errorf("create container: %w", err)
	}
	if config.GetMetadata() == nil {
		return "", errors.New("create container: container config has no metadata")
	}
	c := &podContainer{turn: newTurn(), id: newID(), sandboxID: sandboxID, name: containerName(config.GetMetadata(), pod.GetMetadata()), created: time.Now(), stdin: config.GetStdin(), stdinOnce: config.GetStdinOnce()}
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("create container %q in sandbox %q: %w", config.GetMetadata().GetName(), sandboxID, err)
	}
	if err := d.reserve(c.name, c.id); err != nil {
		return fail(err)
	}
	err = d.create(ctx, s, c, config)
	if err == nil && !d.add(s, c) {
		err = errors.New("the sandbox was stopped meanwhile")
	}
	if err != nil {
		undone, cancel := undo(ctx)
		defer cancel()
		err = errors.Join(err, d.discard(undone, c))
		d.release(c.name)
		return fail(err)
	}
	d.emit(s, c.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return c.id, nil
}

// add adds a container, unless its sandbox is not ready any longer.
func (d *Driver) add(s *podSandbox, c *podContainer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.state() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return false
	}
	d.containers[c.id] = c
	return true
}

func (d *Driver) create(ctx context.Context, s *podSandbox, c *podContainer, config *runtimeapi.ContainerConfig) error {
	if s.state() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return errors.New("the sandbox is not ready")
	}
	image, err := d.Store.Image(ctx, config.GetImage().GetImage())
	if err != nil {
		return err
	}
	if image == nil {
		return fmt.Errorf("image %q: %w", config.GetImage().GetImage(), container.ErrNotFound)
	}
	if c.signal, err = spec.StopSignal(config, &image.Config); err != nil {
		return err
	}
	record := &store.Record{ID: c.id, Container: config, SandboxID: s.id, Image: config.GetImage().GetImage(), Snapshot: c.id, CreatedAt: c.created}
	if err := d.Store.Create(ctx, record); err != nil {
		return err
	}
	mounts, err := d.Store.PrepareImage(ctx, c.id, image, idMap(s.config))
	if err != nil {
		return err
	}
	if err := store.MountRoot(mounts, d.root(c.id)); err != nil {
		return err
	}
	built, err := d.build(ctx, s, c, config, image)
	if err != nil {
		return err
	}
	c.status = created(s, c, config, image, built)
	return errors.Join(d.writeSpec(c.id, built), c.save(d, false))
}

// build builds the spec of a container whose root file system is mounted.
func (d *Driver) build(ctx context.Context, s *podSandbox, c *podContainer, config *runtimeapi.ContainerConfig, image *store.Image) (*specs.Spec, error) {
	users, err := readUsers(d.root(c.id))
	if err != nil {
		return nil, err
	}
	volumes, err := makeVolumes(filepath.Join(d.VolumeDir, c.id), d.root(c.id), image.Config.Volumes, idMap(s.config))
	if err != nil {
		return nil, err
	}
	images, err := d.imageVolumes(ctx, c.id, config.GetMounts(), idMap(s.config))
	if err != nil {
		return nil, err
	}
	paths := d.namespaces(s.id, s.config).Paths()
	target, err := d.target(s, c, config)
	if err != nil {
		return nil, err
	}
	return spec.Build(&spec.Container{
		ID: c.id, SandboxID: s.id, Config: config, Sandbox: s.config, Image: &image.Config, ImageName: config.GetImage().GetImage(), Users: users,
		Namespaces: spec.Namespaces{Network: paths.Net, IPC: paths.IPC, UTS: paths.UTS, User: paths.User, PID: paths.PID, Target: target},
		Files:      spec.Files{Hostname: paths.Hostname, ResolvConf: paths.ResolvConf, Shm: paths.Shm},
		Volumes:    volumes, ImageMounts: images, Handler: d.Handlers[s.handler].Features, Node: d.Node,
	})
}

// target pins the PID namespace of the container that a container names as its target, and
// returns the path: "" without one.
func (d *Driver) target(s *podSandbox, c *podContainer, config *runtimeapi.ContainerConfig) (string, error) {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetPid() != runtimeapi.NamespaceMode_TARGET {
		return "", nil
	}
	target, err := d.running(options.GetTargetId())
	if err == nil && target.sandboxID != s.id {
		err = fmt.Errorf("container %q is in another sandbox", target.id)
	}
	if err != nil {
		return "", fmt.Errorf("target: %w", err)
	}
	target.mu.Lock()
	process := target.pid
	target.mu.Unlock()
	pin := d.targetPin(c.id)
	return pin, sandbox.PinPID(pin, process)
}

func (d *Driver) targetPin(id string) string { return filepath.Join(d.containerDir(id), "target") }

// created returns the status of a new container.
func created(s *podSandbox, c *podContainer, config *runtimeapi.ContainerConfig, image *store.Image, built *specs.Spec) *runtimeapi.ContainerStatus {
	out := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: config.GetMetadata(), State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: c.created.UnixNano(),
		Image: config.GetImage(), ImageRef: image.Ref(), ImageId: image.ID.String(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		Mounts: config.GetMounts(), StopSignal: config.GetStopSignal(),
		Resources: &runtimeapi.ContainerResources{Linux: config.GetLinux().GetResources()},
		User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
			Uid: int64(built.Process.User.UID), Gid: int64(built.Process.User.GID),
		}},
	}
	for _, gid := range built.Process.User.AdditionalGids {
		out.User.Linux.SupplementalGroups = append(out.User.Linux.SupplementalGroups, int64(gid))
	}
	if s.config.GetLogDirectory() != "" && config.GetLogPath() != "" {
		out.LogPath = filepath.Join(s.config.GetLogDirectory(), config.GetLogPath())
	}
	return proto.CloneOf(out)
}

// writeSpec writes the spec of a container, and its process for commands.
func (d *Driver) writeSpec(id string, s *specs.Spec) error {
	process, err := json.Marshal(s.Process)
	if err != nil {
		return fmt.Errorf("encode process: %w", err)
	}
	return errors.Join(writeConfig(d.bundle(id), s), atomicfile.Write(filepath.Join(d.containerDir(id), fileProcess), process, 0o600))
}

// writeConfig writes the config.json of a bundle.
func writeConfig(bundle string, s *specs.Spec) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	return atomicfile.Write(filepath.Join(bundle, fileConfig), data, 0o600)
}

// save writes what the container has until the next boot.
func (c *podContainer) save(d *Driver, started bool) error {
	status, err := protojson.Marshal(c.snapshot())
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	return saveState(d.containerDir(c.id), containerState{Status: status, Signal: c.signal, Stdin: c.stdin, StdinOnce: c.stdinOnce, Started: started})
}

func (c *podContainer) snapshot() *runtimeapi.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// change replaces the status by a changed copy.
func (c *podContainer) change(change func(*runtimeapi.ContainerStatus)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = proto.CloneOf(c.status)
	change(c.status)
}

// handlerOf returns the runtime handler of a container.
func (d *Driver) handlerOf(c *podContainer) Handler {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sandboxes[c.sandboxID]; s != nil {
		return d.Handlers[s.handler]
	}
	return d.Handlers[""]
}

// StartContainer implements container.Containers.
func (d *Driver) StartContainer(ctx context.Context, id string) error {
	c, err := d.container(id)
	if err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	if err := c.turn.take(ctx); err != nil {
		return fmt.Errorf("start container %q: %w", id, err)
	}
	defer c.turn.release()
	if state := c.snapshot().GetState(); state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return fmt.Errorf("start container %q: it is in state %s", id, state)
	}
	s, err := d.sandbox(c.sandboxID)
	if err == nil && s.state() != runtimeapi.PodSandboxState_SANDBOX_READY {
		err = errors.New("the sandbox is not ready")
	}
	if err != nil {
		return fmt.Errorf("start container %q: %w", id, err)
	}
	if err := d.start(ctx, s, c); err != nil {
		return fmt.Errorf("start container %q: %w", id, err)
	}
	d.emit(s, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return nil
}

// Reason and exit code of a container that could not be started, as in containerd.
const (
	reasonStartError = "StartError"
	codeStartError   = 128
)

// startTimeout limits the run of the OCI runtime program.
const startTimeout = 2 * time.Minute

func (d *Driver) start(ctx context.Context, s *podSandbox, c *podContainer) error {
	handler, status := d.Handlers[s.handler], c.snapshot()
	if err := c.save(d, true); err != nil {
		return err
	}
	config, err := d.readSpec(c.id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.ended = make(chan struct{})
	c.mu.Unlock()
	// A start that was begun has an outcome, also if the caller does not wait for it.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	started, err := d.Keeper.Start(limited, &keeper.Start{
		ID: c.id, Program: handler.Program, Bundle: d.bundle(c.id), LogPath: status.GetLogPath(),
		Stdin: c.stdin, Terminal: config.Process != nil && config.Process.Terminal,
	})
	if err != nil {
		undone, cancel := undo(ctx)
		defer cancel()
		return errors.Join(err, d.end(undone, c, handler, store.Exit{Code: codeStartError, FinishedAt: time.Now().UnixNano(), Reason: reasonStartError, Message: err.Error()}))
	}
	c.mu.Lock()
	c.pid = oci.Process{PID: started.PID, StartTime: started.StartTime}
	c.mu.Unlock()
	d.watchOOM(s, c)
	c.change(func(st *runtimeapi.ContainerStatus) {
		st.State, st.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, started.StartedAt
	})
	// The OCI runtime has its own copy of the spec.
	return errors.Join(c.save(d, true), os.Remove(filepath.Join(d.bundle(c.id), fileConfig)))
}

func (d *Driver) readSpec(id string) (*specs.Spec, error) {
	data, err := atomicfile.Read(filepath.Join(d.bundle(id), fileConfig), maxConfig)
	if err != nil {
		return nil, fmt.Errorf("read spec: %w", err)
	}
	out := new(specs.Spec)
	if err := json.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("decode spec: %w", err)
	}
	return out, nil
}

// StopContainer implements container.Containers.
func (d *Driver) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	c := d.findContainer(id)
	if c == nil {
		return nil // it was removed
	}
	c.mu.Lock()
	ended, pid := c.ended, c.pid
	c.mu.Unlock()
	if ended == nil || c.snapshot().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil
	}
	if grace > 0 {
		number, err := stopSignal(c.signal)
		if err == nil {
			err = pid.Signal(number)
		}
		if err != nil {
			return fmt.Errorf("stop container %q: %w", id, err)
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-ended:
			return nil
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("stop container %q: %w", id, cancelled(ctx))
		}
	}
	if err := d.kill(ctx, c); err != nil {
		return fmt.Errorf("stop container %q: %w", id, err)
	}
	return nil
}

// maxSignal is the number of the last signal, SIGRTMAX (signal(7)).
const maxSignal = 64

// stopSignal returns the signal of a name or number. "" is SIGTERM.
func stopSignal(name string) (unix.Signal, error) {
	if name == "" {
		return unix.SIGTERM, nil
	}
	number, err := signal.ParseSignal(name) // takes any number
	if err == nil && (number < 1 || number > maxSignal) {
		err = fmt.Errorf("signal %q is out of range", name)
	}
	return unix.Signal(number), err
}

// kill kills a container, and waits until it has ended.
func (d *Driver) kill(ctx context.Context, c *podContainer) error {
	c.mu.Lock()
	ended, pid := c.ended, c.pid
	c.mu.Unlock()
	if ended == nil || c.snapshot().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil
	}
	if err := pid.Kill(); err != nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return cancelled(ctx)
	}
}

// RemoveContainer implements container.Containers.
func (d *Driver) RemoveContainer(ctx context.Context, id string) error {
	c := d.findContainer(id)
	if c == nil {
		return nil // it was removed
	}
	if err := d.remove(ctx, c); err != nil {
		return fmt.Errorf("remove container %q: %w", id, err)
	}
	if s := d.findSandbox(c.sandboxID); s != nil {
		d.emit(s, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	d.mu.Lock()
	delete(d.containers, id)
	d.mu.Unlock()
	d.release(c.name)
	return nil
}

func (d *Driver) remove(ctx context.Context, c *podContainer) error {
	if err := c.turn.take(ctx); err != nil {
		return err
	}
	defer c.turn.release()
	if err := d.kill(ctx, c); err != nil {
		return err
	}
	return d.discard(ctx, c)
}

// discard removes everything of a container that does not run, its record last.
func (d *Driver) discard(ctx context.Context, c *podContainer) error {
	if err := sandbox.Unpin(d.targetPin(c.id)); err != nil {
		return err
	}
	if err := d.unmount(c.id); err != nil {
		return err
	}
	if err := d.removeImages(ctx, c.id); err != nil {
		return err
	}
	if err := d.Store.RemoveSnapshot(ctx, c.id); err != nil {
		return err
	}
	if err := errors.Join(removeState(d.containerDir(c.id)), os.RemoveAll(filepath.Join(d.VolumeDir, c.id))); err != nil {
		return err
	}
	return d.Store.Delete(ctx, c.id)
}

// ContainerStatus implements container.Containers.
func (d *Driver) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	c, err := d.container(id)
	if err != nil {
		return nil, err
	}
	return proto.CloneOf(c.snapshot()), nil
}

// ListContainers implements container.Containers.
func (d *Driver) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	all := make([]*podContainer, 0, len(d.containers))
	for _, c := range d.containers {
		all = append(all, c)
	}
	d.mu.Unlock()
	slices.SortFunc(all, func(a, b *podContainer) int { return a.created.Compare(b.created) })
	var out []*runtimeapi.Container
	for _, c := range all {
		s := proto.CloneOf(c.snapshot())
		if f.GetId() != "" && f.GetId() != c.id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandboxID ||
			f.GetState() != nil && f.GetState().GetState() != s.GetState() || !selects(f.GetLabelSelector(), s.GetLabels()) {
			continue
		}
		out = append(out, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandboxID, Metadata: s.GetMetadata(), Image: s.GetImage(), ImageRef: s.GetImageRef(), ImageId: s.GetImageId(),
			State: s.GetState(), CreatedAt: s.GetCreatedAt(), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		})
	}
	return out, nil
}

// ReopenContainerLog implements container.Containers.
func (d *Driver) ReopenContainerLog(ctx context.Context, id string) error {
	if err := d.Keeper.Reopen(ctx, id); err != nil {
		return fmt.Errorf("reopen log of container %q: %w", id, keeperError(err))
	}
	return nil
}

// keeperError maps an error of the keeper to those of package container.
func keeperError(err error) error {
	switch {
	case errors.Is(err, keeper.ErrUnavailable):
		return fmt.Errorf("%w: %w", container.ErrUnavailable, err)
	case errors.Is(err, keeper.ErrNotFound):
		return fmt.Errorf("%w: %w", container.ErrNotFound, err)
	}
	return err
}
