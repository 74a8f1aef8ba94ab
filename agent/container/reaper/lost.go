// Package reaper finds containers and sandboxes that have exited although the runtime
// reports them as running, and stops their shims so that the runtime updates its state.
//
// containerd's CRI server has a timeout of 10 s for the cleanup of a container that has
// exited (handleEventTimeout). If the cleanup takes longer on a busy node or a slow disk,
// the OCI runtime may be killed after it has removed only its own record of the container.
// Each retry of crun then fails because the record is missing, with an error that
// containerd's shim does not treat as an exit. CRI reports the container as running until
// the shim ends: it is never restarted, and killing it fails. After a restart of containerd
// its state is unknown, and stopping it still fails. When the pod's shim is stopped, the pod
// is restarted. The same happens to the process of a sandbox: stopping the sandbox always
// fails, and the pod remains terminating.
//
// The reaper finds a container without a process by the kernel's cgroup files. It calls the
// runtime only for containers that had no process at two consecutive checks.
//
// It reads the files once a minute and does not watch them. A watch (Poller of package
// cgroups) would need an open file for each container, for which the kernel allocates a
// buffer of 4 KiB (seq_file), and would wake the agent at each container's exit, which the
// runtime reports anyway. A read takes about 10 µs for each container.
package reaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// checkInterval is the interval between checks. The exit of any other container is known
// within a second.
const checkInterval = time.Minute

// reasonLost is the reason of the event.
const reasonLost = "ContainerLost"

// Container is a container that runs, or a sandbox that is ready, by its pod's status, or by
// the runtime's report if the pod has no status.
type Container struct {
	Ref  pod.Ref
	Name string // "" for a sandbox
	ID   string
	// Cgroup is the path of its cgroup below the root of the hierarchy.
	Cgroup string
}

// Config configures a Reaper. All fields but AfterCheck are required.
type Config struct {
	// Running lists the running containers.
	Running func(context.Context) []Container
	// AfterCheck is called after each check, once a minute, for other checks that can run
	// while the agent is awake. It must not block. It may be nil.
	AfterCheck func()
	// Populated reports whether a cgroup or one below it has processes. It is
	// false for a cgroup that does not exist.
	Populated func(cgroup string) (bool, error)
	// Runtime is the CRI service.
	Runtime Runtime
	// Tasks is containerd's native API.
	Tasks interface {
		// Ended reports whether the task of a container has stopped or does not exist,
		// by the runtime's native API. It fails with container.ErrUnsupported if the
		// runtime does not have this API.
		Ended(ctx context.Context, containerID string) (bool, error)
		// EndShim kills the shim of a sandbox, and reports whether there was one.
		EndShim(sandboxID string) (bool, error)
	}
	// Wake triggers a sync of the pod; it must not block.
	Wake   func(types.UID)
	Events interface {
		Warning(ref pod.Ref, reason, message string)
	}
	Log *slog.Logger
}

// Runtime is the part of CRI that a Reaper needs.
type Runtime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
}

// Reaper finds lost containers and stops their shims.
type Reaper struct {
	cfg Config
	// suspects are the containers that had no process at the last check, by ID.
	suspects map[string]suspect
}

// suspect is the state of a container without a process.
type suspect struct {
	handled bool // nothing more can be done
	// interval is the number of checks from one query to the next; left are those that
	// remain of it.
	interval, left int
}

// maxInterval bounds the interval of queries of a container that runs by the runtime's own
// record.
const maxInterval = 64

// New returns a Reaper. It starts nothing.
func New(cfg Config) *Reaper { return &Reaper{cfg: cfg} }

// Run checks once a minute until ctx ends, and returns the cause.
func (r *Reaper) Run(ctx context.Context) error {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			r.check(ctx)
			if r.cfg.AfterCheck != nil {
				r.cfg.AfterCheck()
			}
		}
	}
}

func (r *Reaper) check(ctx context.Context) {
	var empty map[string]suspect
	for _, c := range r.cfg.Running(ctx) {
		populated, err := r.cfg.Populated(c.Cgroup)
		if err != nil {
			r.cfg.Log.Debug("cannot read processes of container", "pod", c.Ref.String(), "podUID", c.Ref.UID, "container", c.Name, "containerID", c.ID, "error", err)
		}
		if populated || err != nil {
			continue
		}
		s, again := r.suspects[c.ID]
		switch {
		case !again:
			s.interval = 1
		case s.left > 0:
			s.left--
		case !s.handled:
			s = r.handleSuspect(ctx, &c, s)
		}
		if empty == nil {
			empty = make(map[string]suspect)
		}
		empty[c.ID] = s
	}
	r.suspects = empty
}

// handleSuspect queries the runtime, and stops the shim of a container that CRI reports as
// running and whose task has ended.
func (r *Reaper) handleSuspect(ctx context.Context, c *Container, s suspect) suspect {
	log := r.cfg.Log.With("pod", c.Ref.String(), "podUID", c.Ref.UID, "container", c.Name, "containerID", c.ID)
	handled := suspect{handled: true}
	sandbox, err := r.sandboxOfRunning(ctx, c)
	if err != nil {
		log.Debug("cannot list container without process", "error", err)
		return s
	}
	if sandbox == "" {
		r.cfg.Wake(c.Ref.UID) // its exit event was missed
		return handled
	}
	ended, err := r.cfg.Tasks.Ended(ctx, c.ID)
	switch {
	case errors.Is(err, container.ErrUnsupported):
		return handled
	case err != nil:
		log.Warn("cannot query task of container without process", "error", err)
		return s
	case !ended:
		// The shim has not seen the exit yet, or the processes are in another cgroup, and
		// then the answer will remain the same.
		s.left = s.interval - 1
		s.interval = min(2*s.interval, maxInterval)
		return s
	}
	found, err := r.cfg.Tasks.EndShim(sandbox)
	switch {
	case err != nil:
		log.Error("cannot stop shim of dead container", "error", err, "remedy", "reboot the node")
		return s
	case !found:
		log.Error("dead container has no shim", "remedy", "reboot the node")
		return handled
	}
	log.Warn("stopped shim of dead container")
	what := "the pod's sandbox"
	if c.Name != "" {
		what = "container " + c.Name
	}
	r.cfg.Events.Warning(c.Ref, reasonLost, fmt.Sprintf("The container runtime reported %s as running after it had exited; the pod is restarted if it is still desired", what))
	return handled
}

// sandboxOfRunning returns the ID of the sandbox of a container, or of the sandbox itself. It
// returns "" if the runtime does not report it as running or ready.
func (r *Reaper) sandboxOfRunning(ctx context.Context, c *Container) (id string, err error) {
	if c.Name == "" {
		list, err := r.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{Id: c.ID})
		if err != nil || len(list) == 0 || list[0].GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			return "", err
		}
		return c.ID, nil
	}
	list, err := r.cfg.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{Id: c.ID})
	if err != nil || len(list) == 0 || list[0].GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return "", err
	}
	return list[0].GetPodSandboxId(), nil
}
