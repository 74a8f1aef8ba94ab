package podsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/plan"
	"github.com/tinylet/tinylet/cgroups"
)

// Terminate implements podworker.Syncer.
func (s *Syncer) Terminate(ctx context.Context, ref pod.Ref, p *v1.Pod, grace time.Duration) error {
	p = s.resizes.allocated(p)
	f := s.stateOf(ref.UID)
	f.terminating = true
	s.Probes.StopLivenessAndStartup(ref.UID)
	// The observation may be old. A container that has exited since is stopped again,
	// which has no effect.
	o, err := s.lastSeen(ctx, f, ref)
	if err != nil {
		return err
	}
	if p != nil {
		s.evicted(p, f) // the pod may be terminated before a sync records it
		s.report(ctx, p, o, f)
	}
	stopper, end := s.stopper(ref, o, f, grace), plan.Terminate(p, o)
	stopped := make(chan error, 1)
	go func() { stopped <- stopper.containers(ctx, end) }()
	if err := s.reportUntil(ctx, stopped, ref.UID, p, o, f); err != nil {
		return err
	}
	if o, err = s.stopSandboxes(ctx, ref, end.Sandboxes); err != nil {
		return err
	}
	if o.Running() {
		return fmt.Errorf("terminate pod %s: containers or sandboxes are still running", ref)
	}
	if p != nil {
		s.report(ctx, p, o, f)
	}
	f.lastObserved = o
	return nil
}

// reportUntil receives and returns the result of stopping the pod's containers. Until then
// it reports the pod's status again after each change of its probe results: a container
// that no longer serves while it ends becomes unready.
func (s *Syncer) reportUntil(ctx context.Context, stopped <-chan error, uid types.UID, p *v1.Pod, o *container.Observed, f *syncState) error {
	changes := s.Probes.Changes(uid)
	for {
		select {
		case err := <-stopped:
			return err
		case <-changes:
			if p != nil {
				s.report(ctx, p, o, f)
			}
		}
	}
}

// stopSandboxes stops a pod's sandboxes, whose containers were stopped before, and
// returns the pod's state. It observes the pod concurrently, since the runtime spends
// most of the time on network teardown. It observes the pod again if something seems to
// run.
func (s *Syncer) stopSandboxes(ctx context.Context, ref pod.Ref, ids []string) (*container.Observed, error) {
	var o *container.Observed
	var observeErr error
	var wg sync.WaitGroup
	wg.Go(func() { o, observeErr = container.Observe(ctx, s.Runtime, ref.UID) })
	stopErr := s.sandboxes(ctx, ids)
	wg.Wait()
	if err := errors.Join(stopErr, observeErr); err != nil {
		return nil, err
	}
	if o = o.WithStopped(ids); !o.Running() {
		return o, nil
	}
	return container.Observe(ctx, s.Runtime, ref.UID)
}

// lastSeen returns and clears the stored observation of the pod. If there is none, it
// observes the pod.
func (s *Syncer) lastSeen(ctx context.Context, f *syncState, ref pod.Ref) (*container.Observed, error) {
	if o := f.lastObserved; o != nil {
		f.lastObserved = nil
		return o, nil
	}
	return container.Observe(ctx, s.Runtime, ref.UID)
}

// Finish implements podworker.Syncer. It releases the volumes, the cgroup, the probes
// and the exclusive CPUs, and frees the node's resources for other pods. The stopped
// containers and their logs stay as the record of how the pod ended.
func (s *Syncer) Finish(ctx context.Context, ref pod.Ref, p *v1.Pod) error {
	p = s.resizes.allocated(p)
	if err := s.Volumes.Release(ctx, ref.UID); err != nil {
		return err
	}
	s.reportForeignVolumes(ref)
	node, err := s.Node(ctx)
	if err != nil {
		return err
	}
	f := s.stateOf(ref.UID)
	if s.Cgroups != nil {
		for _, path := range criconfig.PodCgroups(ref.UID, node) {
			if err := s.dropCgroup(ref, path, f); err != nil {
				return err
			}
		}
		if err := s.ensureGroups(node, ref.UID); err != nil {
			s.Log.Warn("cannot update QoS cgroups", "error", err)
		}
	}
	if err := s.removeLeaked(ctx, ref, f); err != nil {
		return err
	}
	s.Probes.RemovePod(ref.UID)
	s.resizes.end(ref.UID)
	s.CPUs.Release(ref.UID)
	s.resourcesFreed(s.admission.end(ref.UID), podTerminated)
	f.terminated = true
	if p == nil {
		return nil
	}
	o, err := s.lastSeen(ctx, f, ref)
	if err != nil {
		return err
	}
	s.report(ctx, p, o, f)
	return nil
}

// dropCgroup removes a cgroup of a pod whose containers the runtime has
// stopped. Processes that are still in it are orphans of the runtime: an
// interrupted start can leave such a process. dropCgroup kills them, as the
// kubelet does (pkg/kubelet/cm/pod_container_manager_linux.go: Destroy), and returns
// an error. The next attempt removes the cgroup.
func (s *Syncer) dropCgroup(ref pod.Ref, path string, f *syncState) error {
	err := s.deleteCgroup(path)
	if errors.Is(err, cgroups.ErrBusy) {
		f.cleanupAttempts = maxCleanupAttempts
		s.Log.Warn("kill orphaned processes in pod cgroup", "pod", ref.String(), "podUID", ref.UID, "cgroup", path)
		err = errors.Join(err, s.Cgroups.Kill(path))
	}
	if err != nil {
		return fmt.Errorf("remove cgroup of pod %s: %w", ref, err)
	}
	return nil
}

// maxCleanupAttempts is the maximum number of attempts to remove the containers that the
// runtime leaked. After that the pod is finished without it.
const maxCleanupAttempts = 3

// removeLeaked removes the shim and the record of the container to which an orphaned
// process belongs.
func (s *Syncer) removeLeaked(ctx context.Context, ref pod.Ref, f *syncState) error {
	if f.cleanupAttempts == 0 || s.NativeAPI == nil {
		return nil
	}
	f.cleanupAttempts--
	removed, err := s.NativeAPI.RemoveOrphans(ctx, ref.UID)
	log := s.Log.With("pod", ref.String(), "podUID", ref.UID)
	if removed > 0 {
		log.Warn("removed leaked containers", "containers", removed)
	}
	switch {
	case err == nil:
		f.cleanupAttempts = 0
		return nil
	case f.cleanupAttempts == 0 || errors.Is(err, container.ErrUnsupported):
		log.Warn("cannot remove leaked containers", "error", err, "remedy", "restart the container runtime")
		f.cleanupAttempts = 0
		return nil
	}
	return fmt.Errorf("remove leaked containers of pod %s: %w", ref, err)
}

// Forget implements podworker.Syncer. It removes the pod's sandboxes, containers,
// directory, logs, user namespace, recorded allocation and status.
func (s *Syncer) Forget(ctx context.Context, ref pod.Ref) error {
	selector := map[string]string{container.LabelPodUID: string(ref.UID)}
	sandboxes, err := s.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("list sandboxes of pod %s: %w", ref, err)
	}
	for _, sandbox := range sandboxes {
		// Terminate has stopped the sandboxes that it observed. Stopping one
		// again tears its network down again, which removing it does as well.
		remove := s.Runtime.RemovePodSandbox
		if sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			remove = s.removeSandbox
		}
		if err := remove(ctx, sandbox.GetId()); err != nil {
			return err
		}
	}
	containers, err := s.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("list containers of pod %s: %w", ref, err)
	}
	for _, c := range containers { // containers without a sandbox
		if err := s.Runtime.RemoveContainer(ctx, c.GetId()); err != nil {
			return err
		}
	}
	if err := s.Users.Release(ref.UID); err != nil {
		return fmt.Errorf("release user namespace of pod %s: %w", ref, err)
	}
	if err := s.Volumes.Teardown(ctx, ref.UID); err != nil {
		return err
	}
	s.reportForeignVolumes(ref)
	node, err := s.Node(ctx)
	if err != nil {
		return err
	}
	if err := s.logsOf(ref, node).remove(); err != nil {
		return err
	}
	if err := s.Allocations.Drop(ref.UID); err != nil {
		return fmt.Errorf("drop resource allocation of pod %s: %w", ref, err)
	}
	s.OOM.Forget(ref.UID)
	s.Statuses.Delete(ref.UID)
	s.dropState(ref.UID)
	return nil
}
