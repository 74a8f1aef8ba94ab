// Package reaper finds containers that have ended although the runtime holds
// them for running, and has the runtime find out.
//
// containerd gives itself 10 s to take down what is left of a container that
// has ended (handleEventTimeout in its CRI server). Where a busy board or a
// slow disk takes longer, the OCI runtime may be killed when it has removed its
// own record of the container and nothing else; crun then fails each repetition
// for the missing record, with words that containerd's shim does not take for
// an end. The container runs for ever in the eyes of CRI: it is never started
// again, and to kill it fails. After a restart of containerd its state is
// unknown, and to stop it still fails. Ending the pod's shim helps, and then
// the pod starts anew.
//
// What has no process shows in the kernel's files, which cost nothing to read;
// the runtime is asked only of containers for which that holds at two looks.
//
// They are read once a minute and not watched. To watch them (WatchState of
// package cgroups) would take an open file for each container, with which the
// kernel keeps a buffer of 4 KiB (seq_file), and wake the agent at each
// container's end, of which the runtime tells anyway. To read them all takes
// about 10 µs each, so 30 pods cost less than a millisecond in a minute, and a
// lost container can wait for a minute.
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

// look is how often the containers are looked at. One that has ended is
// otherwise known within a second.
const look = time.Minute

// reason is that of the event.
const reason = "ContainerLost"

// Container is one that runs by its pod's status, or by the runtime's word where
// the pod has none.
type Container struct {
	Ref      pod.Ref
	Name, ID string
	// Cgroup is the path of its group below the hierarchy's root.
	Cgroup string
}

// Config is what a Finder works with. All fields but Looked are required.
type Config struct {
	// Running lists the containers.
	Running func(context.Context) []Container
	// Looked is called after each look, once a minute: for checks that are due
	// whenever the agent is awake. It must not block. nil is none.
	Looked func()
	// Populated says whether a group or one below it has processes; one that
	// does not exist has none.
	Populated func(cgroup string) (bool, error)
	// Containers is the runtime, by CRI.
	Containers interface {
		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	}
	// Tasks is the runtime below CRI.
	Tasks interface {
		// Ended says whether a container has no process by the runtime's own
		// record of it. It fails with container.ErrUnsupported where the
		// runtime has none.
		Ended(ctx context.Context, containerID string) (bool, error)
		// EndShim ends what stands between the runtime and the processes of a
		// sandbox, and says whether there was such a thing.
		EndShim(sandboxID string) (bool, error)
	}
	// Wake has the pod's worker look again; it must not block.
	Wake   func(types.UID)
	Events interface {
		Warning(ref pod.Ref, reason, message string)
	}
	Log *slog.Logger
}

// Finder looks for lost containers.
type Finder struct {
	cfg Config
	// empty are the containers without a process at the last look.
	empty map[string]verdict
}

// verdict is what is known of a container without a process.
type verdict int

const (
	suspected verdict = iota // seen once, or the runtime could not be asked
	settled                  // nothing more can be done
)

// New makes a Finder; nothing is started.
func New(cfg Config) *Finder { return &Finder{cfg: cfg} }

// Run looks once a minute until ctx ends, and returns its cause.
func (f *Finder) Run(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			f.look(ctx)
			if f.cfg.Looked != nil {
				f.cfg.Looked()
			}
		}
	}
}

func (f *Finder) look(ctx context.Context) {
	var empty map[string]verdict
	for _, c := range f.cfg.Running(ctx) {
		populated, err := f.cfg.Populated(c.Cgroup)
		if err != nil {
			f.cfg.Log.Debug("it is not known whether a container has processes", "pod", c.Ref.String(), "container", c.Name, "error", err)
		}
		if populated || err != nil {
			continue
		}
		was, again := f.empty[c.ID]
		if again && was == suspected {
			was = f.settle(ctx, &c)
		}
		if empty == nil {
			empty = make(map[string]verdict)
		}
		empty[c.ID] = was
	}
	f.empty = empty
}

// settle asks the runtime, and ends the shim of what it has lost.
func (f *Finder) settle(ctx context.Context, c *Container) verdict {
	log := f.cfg.Log.With("pod", c.Ref.String(), "podUID", c.Ref.UID, "container", c.Name, "id", c.ID)
	held, err := f.cfg.Containers.ListContainers(ctx, &runtimeapi.ContainerFilter{Id: c.ID})
	if err != nil {
		log.Debug("a container without a process is asked for again", "error", err)
		return suspected
	}
	if len(held) == 0 || held[0].GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		f.cfg.Wake(c.Ref.UID) // its end was not heard of
		return settled
	}
	ended, err := f.cfg.Tasks.Ended(ctx, c.ID)
	switch {
	case errors.Is(err, container.ErrUnsupported):
		return settled
	case err != nil:
		log.Warn("a container has no process, and the runtime does not say whether it has ended", "error", err)
		return suspected
	case !ended:
		return settled // its processes are elsewhere
	}
	found, err := f.cfg.Tasks.EndShim(held[0].GetPodSandboxId())
	switch {
	case err != nil:
		log.Error("the runtime holds a container for running that has ended, and its shim could not be ended: restart the board", "error", err)
		return suspected
	case !found:
		log.Error("the runtime holds a container for running that has ended, and has no shim that could be ended: restart the board")
		return settled
	}
	log.Warn("the runtime held a container for running that has ended: the pod's shim was ended, and a pod that is wanted starts anew")
	f.cfg.Events.Warning(c.Ref, reason, fmt.Sprintf("The container runtime held container %s for running although it has ended; a pod that is wanted starts anew", c.Name))
	return settled
}
