package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// observer is the part of Runtime that Observe needs.
type observer interface {
	Sandboxes
	Containers
}

// Observe returns the runtime's state of one pod. It makes two list calls filtered by UID,
// and one status call for each container, in any state, and for each sandbox that is ready.
// It omits an object that is removed in between. For a pod that the runtime does not have it
// returns an Observed with only the UID.
func Observe(ctx context.Context, rt observer, uid types.UID) (*Observed, error) {
	selector := map[string]string{LabelPodUID: string(uid)}
	sandboxes, err := rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("observe pod %q: %w", uid, err)
	}
	containers, err := rt.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("observe pod %q: %w", uid, err)
	}
	o := &Observed{UID: uid}
	for _, s := range sandboxes {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			o.setIdentity(s.GetLabels())
			o.Sandboxes = append(o.Sandboxes, stoppedSandboxOf(s))
			continue
		}
		status, err := rt.PodSandboxStatus(ctx, s.GetId())
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		o.setIdentity(status.GetLabels())
		o.Sandboxes = append(o.Sandboxes, sandboxOf(status))
	}
	for _, c := range containers {
		status, err := rt.ContainerStatus(ctx, c.GetId())
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		o.setIdentity(status.GetLabels())
		o.Containers = append(o.Containers, containerOf(c.GetPodSandboxId(), status))
	}
	o.sort()
	return o, nil
}

// WithSandbox returns a copy of o with one more sandbox, which was created
// after o was observed. It makes one call, where Observe reads the whole pod.
func (o *Observed) WithSandbox(ctx context.Context, rt Sandboxes, id string) (*Observed, error) {
	status, err := rt.PodSandboxStatus(ctx, id)
	if err != nil {
		return nil, err
	}
	out := *o
	out.setIdentity(status.GetLabels())
	out.Sandboxes = append(slices.Clone(o.Sandboxes), sandboxOf(status))
	out.sort()
	return &out, nil
}

// WithContainer returns a copy of o with the current status of one container of
// a sandbox, which o may have already. It makes one call.
func (o *Observed) WithContainer(ctx context.Context, rt Containers, sandboxID, id string) (*Observed, error) {
	status, err := rt.ContainerStatus(ctx, id)
	if err != nil {
		return nil, err
	}
	out := *o
	out.setIdentity(status.GetLabels())
	out.Containers = slices.DeleteFunc(slices.Clone(o.Containers), func(c Container) bool { return c.ID == id })
	out.Containers = append(out.Containers, containerOf(sandboxID, status))
	out.sort()
	return &out, nil
}

// WithStopped returns a copy of o in which the sandboxes with these IDs are
// stopped.
func (o *Observed) WithStopped(ids []string) *Observed {
	out := *o
	out.Sandboxes = slices.Clone(o.Sandboxes)
	for i := range out.Sandboxes {
		if s := &out.Sandboxes[i]; slices.Contains(ids, s.ID) {
			s.Ready, s.IPs, s.HostNetwork = false, nil, false
		}
	}
	return &out
}

func (o *Observed) setIdentity(labels map[string]string) {
	if o.Name == "" {
		o.Namespace, o.Name = labels[LabelPodNamespace], labels[LabelPodName]
	}
}

// sort orders the newest first. The attempt or restart count takes precedence over the
// creation time, because the clock may have been stepped between two attempts.
func (o *Observed) sort() {
	slices.SortStableFunc(o.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
	slices.SortStableFunc(o.Containers, func(a, b Container) int {
		return cmp.Or(cmp.Compare(b.RestartCount, a.RestartCount), b.CreatedAt.Compare(a.CreatedAt))
	})
}

func sandboxOf(s *runtimeapi.PodSandboxStatus) Sandbox {
	out := Sandbox{
		ID:          s.GetId(),
		Attempt:     s.GetMetadata().GetAttempt(),
		Ready:       s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   timeOf(s.GetCreatedAt()),
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
		BootID:      s.GetAnnotations()[AnnotationBoot],
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
		for _, more := range s.GetNetwork().GetAdditionalIps() {
			out.IPs = append(out.IPs, more.GetIp())
		}
	}
	return out
}

// stoppedSandboxOf converts a sandbox that is not ready. Such a sandbox no longer has an
// address, so the list entry has everything that is needed.
func stoppedSandboxOf(s *runtimeapi.PodSandbox) Sandbox {
	return Sandbox{
		ID:        s.GetId(),
		Attempt:   s.GetMetadata().GetAttempt(),
		CreatedAt: timeOf(s.GetCreatedAt()),
		BootID:    s.GetAnnotations()[AnnotationBoot],
	}
}

func containerOf(sandboxID string, s *runtimeapi.ContainerStatus) Container {
	c := Container{
		ID:          s.GetId(),
		Name:        s.GetMetadata().GetName(),
		SandboxID:   sandboxID,
		State:       stateOf[s.GetState()],
		CreatedAt:   timeOf(s.GetCreatedAt()),
		StartedAt:   timeOf(s.GetStartedAt()),
		FinishedAt:  timeOf(s.GetFinishedAt()),
		ExitCode:    s.GetExitCode(),
		Reason:      s.GetReason(),
		Message:     s.GetMessage(),
		Image:       cmp.Or(s.GetImage().GetUserSpecifiedImage(), s.GetImage().GetImage()),
		ImageRef:    s.GetImageRef(),
		ImageID:     cmp.Or(s.GetImageId(), s.GetImageRef()), // containerd 2.0 sets no image ID
		Hash:        s.GetAnnotations()[AnnotationHash],
		Backoff:     parseSeconds(s.GetAnnotations(), AnnotationBackoff, 0),
		GracePeriod: GracePeriodOf(s.GetAnnotations()),
		PreStop:     preStopOf(s.GetAnnotations()),
		User:        userOf(s.GetUser()),
		Resources:   resourcesOf(s.GetResources()),
		StopSignal:  signalOf(s.GetStopSignal()),
		LogPath:     s.GetLogPath(),
	}
	if n, err := strconv.Atoi(s.GetAnnotations()[AnnotationRestartCount]); err == nil && n >= 0 {
		c.RestartCount = n
	} else {
		c.RestartCount = int(min(s.GetMetadata().GetAttempt(), 1<<31-1))
	}
	if path := s.GetAnnotations()[AnnotationTerminationMessagePath]; path != "" {
		for _, m := range s.GetMounts() {
			if m.GetContainerPath() == path {
				c.TerminationMessagePath = m.GetHostPath()
			}
		}
	}
	return c
}

func resourcesOf(r *runtimeapi.ContainerResources) *Resources {
	l := r.GetLinux()
	if l == nil {
		return nil
	}
	return &Resources{CPUShares: l.GetCpuShares(), CPUQuota: l.GetCpuQuota(), CPUPeriod: l.GetCpuPeriod(), MemoryLimit: l.GetMemoryLimitInBytes()}
}

// stateOf has the states of containers; any other one is StateUnknown.
var stateOf = map[runtimeapi.ContainerState]State{
	runtimeapi.ContainerState_CONTAINER_CREATED: StateCreated,
	runtimeapi.ContainerState_CONTAINER_RUNNING: StateRunning,
	runtimeapi.ContainerState_CONTAINER_EXITED:  StateExited,
}

// timeOf converts CRI's nanoseconds since 1970. 0 and the negative zero time of containerd
// 1.x become the zero time.
func timeOf(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
