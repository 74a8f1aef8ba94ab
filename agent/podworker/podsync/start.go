package podsync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/hook"
	"github.com/tinylet/tinylet/agent/podworker/plan"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/volume"
)

// Reasons of events and of waiting containers are the kubelet's
// (pkg/kubelet/events/event.go, pkg/kubelet/kuberuntime).
const (
	reasonFailedMount     = "FailedMount"
	reasonFailedSandbox   = "FailedCreatePodSandBox"
	reasonFailed          = "Failed"
	reasonCreated         = "Created"
	reasonStarted         = "Started"
	reasonInspectError    = "ImageInspectError"
	reasonConfigError     = "CreateContainerConfigError"
	reasonCreateError     = "CreateContainerError"
	reasonRunError        = "RunContainerError"
	reasonSandboxChanged  = "SandboxChanged"
	reasonFailedPodCgroup = "FailedToCreatePodContainer"
	reasonNetworkNotReady = "NetworkNotReady"
)

// networkRetry is the interval of attempts while the runtime's network is not ready, if
// no wakeup comes.
const networkRetry = 30 * time.Second

// starter has what one call of start shares between the containers of a pod.
type starter struct {
	*Syncer
	pod       *v1.Pod
	ref       pod.Ref
	state     *syncState
	node      *criconfig.Node
	logs      logs
	observed  *container.Observed
	volumes   *volume.Result
	users     *runtimeapi.UserNamespace // nil shares the node's user namespace
	hosts     string                    // the pod's /etc/hosts on the host
	sandboxID string
	sandbox   *runtimeapi.PodSandboxConfig
	ips       []string
}

// start creates the sandbox if the plan requires it, and else starts the
// containers that are due. If one container fails, it continues with the next.
// seen is o with what was created or started, or nil if that could not be
// observed. retry is the time of the next attempt if the image of a container could
// not be pulled or the runtime's network is not ready.
func (s *Syncer) start(ctx context.Context, p *v1.Pod, o *container.Observed, a *plan.Actions, f *syncState) (seen *container.Observed, retry time.Time, err error) {
	node, err := s.Node(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	if a.CreateSandbox && !p.Spec.HostNetwork && s.NetworkProblem != nil {
		if problem := s.NetworkProblem(); problem != "" {
			s.Events.Warning(pod.RefOf(p), reasonNetworkNotReady, "network is not ready: "+problem)
			return nil, s.now().Add(networkRetry), nil
		}
	}
	st := &starter{Syncer: s, pod: p, ref: pod.RefOf(p), observed: o, state: f, node: node, sandboxID: a.SandboxID}
	if newest := o.Sandbox(); newest != nil && !a.CreateSandbox {
		st.ips = newest.IPs
	}
	st.logs = s.logsOf(st.ref, node)
	if err := st.prepare(ctx); err != nil {
		return nil, time.Time{}, err
	}
	st.sandbox, err = criconfig.SandboxConfig(criconfig.SandboxInput{
		Pod: p, Attempt: a.Attempt, Node: st.nodeFor(st.ref.UID, "", st.node), Userns: st.users, ExtraGroups: st.volumes.Groups,
		BootID: s.BootID,
	})
	if err != nil {
		if a.CreateSandbox {
			s.countPod(ctx, err)
		}
		s.Events.Warning(st.ref, reasonFailedSandbox, err.Error())
		return nil, time.Time{}, fmt.Errorf("build sandbox config: %w", err)
	}
	if a.CreateSandbox {
		if len(o.Sandboxes) > 0 {
			s.Events.Normal(st.ref, reasonSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
		}
		seen, err = st.createSandbox(ctx)
		s.countPod(ctx, err)
		return seen, time.Time{}, err
	}
	if err := st.writeHosts(); err != nil {
		s.Events.Warning(st.ref, reasonFailedMount, err.Error())
		return nil, time.Time{}, err
	}
	seen = o
	var errs []error
	for i := range a.Start {
		var bad *image.Error
		id, err := st.startContainer(ctx, &a.Start[i])
		st.countContainer(ctx, &a.Start[i], err)
		switch {
		case errors.As(err, &bad):
			retry = sooner(retry, s.now().Add(retryImage(bad)))
		case err != nil:
			errs = append(errs, err)
		default:
			delete(f.waiting, a.Start[i].Container.Name)
			if seen != nil {
				seen, _ = seen.WithContainer(ctx, s.Runtime, st.sandboxID, id)
			}
		}
		if ctx.Err() != nil {
			return nil, time.Time{}, context.Cause(ctx)
		}
	}
	return seen, retry, errors.Join(errs...)
}

// The intervals at which a container is retried whose image is not present. The long
// one is for causes that only the operator can fix.
const (
	imageRetrySoon  = 10 * time.Second
	imageRetryLater = time.Minute
)

func retryImage(err *image.Error) time.Duration {
	switch {
	case err.Reason == image.ReasonNeverPull, err.Reason == image.ReasonInvalidName:
		return imageRetryLater
	case err.RetryAfter > 0:
		return err.RetryAfter
	}
	return imageRetrySoon
}

// sooner returns the earlier of two times; zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// prepare creates the pod's cgroup, volumes and user namespace, and finds its runtime
// handler.
func (st *starter) prepare(ctx context.Context) (err error) {
	if st.Cgroups != nil {
		path := criconfig.PodCgroup(st.pod, st.node)
		err := st.ensureCgroup(path, st.withoutLowering(path, criconfig.PodResources(st.pod, st.nodeFor(st.ref.UID, "", st.node))))
		if err != nil {
			err = fmt.Errorf("create pod cgroup: %w", err)
		} else {
			err = st.ensureGroups(st.node, "")
		}
		if err != nil {
			st.Events.Warning(st.ref, reasonFailedPodCgroup, err.Error())
			return err
		}
	}
	if st.volumes, err = st.setUp(ctx, st.pod, st.node, st.ips); err != nil {
		if ctx.Err() == nil {
			st.Events.Warning(st.ref, reasonFailedMount, err.Error())
		}
		return err
	}
	if st.state.handler, err = st.Handler(ctx, st.pod); err != nil {
		st.Events.Warning(st.ref, reasonFailedSandbox, err.Error())
		return err
	}
	if hostUsers := st.pod.Spec.HostUsers; hostUsers != nil && !*hostUsers {
		if st.users, err = st.Users.Get(st.pod.UID); err != nil {
			st.Events.Warning(st.ref, reasonFailedSandbox, err.Error())
			return fmt.Errorf("allocate user namespace: %w", err)
		}
	}
	return nil
}

// writeHosts writes the pod's /etc/hosts. The pod's addresses have to be known.
func (st *starter) writeHosts() error {
	var nodes []byte
	if st.pod.Spec.HostNetwork {
		nodes, _ = os.ReadFile("/etc/hosts") // without the file the node adds no names
	}
	content, err := criconfig.HostsFile(st.pod, st.node, st.ips, nodes)
	if err != nil {
		return fmt.Errorf("build hosts file: %w", err)
	}
	st.hosts, err = st.Volumes.WriteHosts(st.ref.UID, content)
	return err
}

// createSandbox runs the sandbox. seen has the pod's addresses. It is nil if the
// sandbox could not be observed.
func (st *starter) createSandbox(ctx context.Context) (seen *container.Observed, err error) {
	if err := st.logs.prepare(""); err != nil {
		st.Events.Warning(st.ref, reasonFailedSandbox, err.Error())
		return nil, err
	}
	for _, w := range criconfig.SandboxWarnings(st.pod, st.node) {
		st.Events.Warning(st.ref, w.Reason, w.Message)
	}
	if err := st.state.slot.acquire(ctx, st.startSlots); err != nil {
		return nil, err
	}
	id, err := st.Runtime.RunPodSandbox(ctx, st.sandbox, st.state.handler)
	if err != nil {
		if ctx.Err() == nil {
			st.Events.Warning(st.ref, reasonFailedSandbox, err.Error())
		}
		return nil, err
	}
	seen, _ = st.observed.WithSandbox(ctx, st.Runtime, id)
	return seen, nil
}

// startContainer starts one container, and creates it first unless what.Existing is
// set. It blocks until the postStart hook has ended.
func (st *starter) startContainer(ctx context.Context, what *plan.Start) (id string, err error) {
	id = what.Existing
	count := what.RestartCount
	if id == "" {
		count = st.logs.nextCount(what.Container.Name, max(count, st.leastCount(what.Container.Name)))
		if id, err = st.create(ctx, what, count); err != nil {
			return "", err
		}
	}
	name := what.Container.Name
	if err := st.Runtime.StartContainer(ctx, id); err != nil {
		return "", st.failed(ctx, name, reasonRunError, inContainer(name, err))
	}
	st.Statuses.RecordStart(st.ref.UID, pod.RunningContainer{Name: name, ID: id, Restarts: count})
	st.Events.Normal(st.ref, reasonStarted, "Started container "+name)
	if err := st.logs.link(name, id, count); err != nil {
		st.Log.Warn("cannot create log link", "pod", st.ref.String(), "podUID", st.ref.UID, "container", name, "error", err)
	}
	return id, st.postStart(ctx, what.Container, id)
}

// postStart runs the container's postStart hook. It stops a container whose hook
// failed; the restart policy decides whether it starts again. As with a kubelet, the
// hook is not run for a container that was started right before the agent died.
func (st *starter) postStart(ctx context.Context, c *v1.Container, id string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	st.state.slot.release()
	ips := st.ips
	if len(ips) == 0 {
		ips = st.node.HostIPs
	}
	err := st.Hooks.PostStart(ctx, st.ref, c, id, ips)
	var bad *hook.Error
	if !errors.As(err, &bad) || ctx.Err() != nil {
		return err
	}
	st.state.wait(c.Name, hook.WaitingPostStart, bad.Detail)
	st.Events.Warning(st.ref, bad.Reason, bad.Message)
	kill := plan.Kill{
		ID: id, Name: c.Name, Message: hook.ReasonFailedPostStart,
		Grace: pod.TerminationGracePeriod(st.pod), PreStop: c.Lifecycle.PreStop, Container: c,
	}
	stop := st.stopper(st.ref, st.observed, st.state, noLimit)
	return errors.Join(inContainer(c.Name, err), stop.kill(ctx, []plan.Kill{kill}))
}

// leastCount returns the restart count that the pod's status implies for the
// next container of a name. An earlier container that was not started, or that
// the runtime lost, may have had a higher count than the remaining ones.
// Readers of the status expect the log of that count.
func (st *starter) leastCount(name string) int {
	if _, s, ok := st.Statuses.Get(st.ref.UID); ok {
		if c := pod.FindContainerStatus(s, name); c != nil {
			return int(podstatus.NextCount(c))
		}
	}
	return 0
}

// create pulls the image and creates the container.
func (st *starter) create(ctx context.Context, what *plan.Start, count int) (id string, err error) {
	c := what.Container
	ref, img, err := st.pull(ctx, c.Name, c)
	if err != nil {
		return "", err
	}
	if img == nil {
		if img, err = st.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}); err != nil {
			return "", st.failed(ctx, c.Name, reasonInspectError, inContainer(c.Name, err))
		}
	}
	in := criconfig.ContainerInput{
		Pod: st.pod, Container: c, Node: st.nodeFor(st.ref.UID, c.Name, st.node), Image: img, RestartCount: count, Backoff: what.Backoff,
		HostsFile: st.hosts, PodIPs: st.ips, Userns: st.users, ExtraGroups: st.volumes.Groups,
	}
	if err := st.attach(ctx, &in); err != nil {
		return "", err
	}
	message, err := st.Volumes.TerminationMessage(st.pod.UID, c.Name)
	if err != nil {
		return "", st.failed(ctx, c.Name, reasonConfigError, err)
	}
	in.TerminationMessage = message
	defer func() {
		mayExist := errors.Is(err, container.ErrTimeout) || errors.Is(err, container.ErrUnavailable)
		if err != nil && !mayExist {
			_ = os.Remove(message) // a file that stays is removed after the container's next end
		}
	}()
	config, err := criconfig.ContainerConfig(in)
	if err != nil {
		return "", st.failed(ctx, c.Name, reasonConfigError, configError(err))
	}
	config.Linux.Resources.CpusetCpus = st.CPUs.CPUSet(st.ref.UID, c.Name)
	for _, w := range criconfig.ContainerWarnings(&in) {
		st.Events.Warning(st.ref, w.Reason, w.Message)
	}
	if err := errors.Join(st.logs.prepare(c.Name), st.logs.trim(c.Name, count)); err != nil {
		return "", st.failed(ctx, c.Name, reasonCreateError, err)
	}
	id, err = st.Runtime.CreateContainer(ctx, st.sandboxID, config, st.sandbox)
	if err != nil {
		return "", st.failed(ctx, c.Name, reasonCreateError, inContainer(c.Name, err))
	}
	st.Events.Normal(st.ref, reasonCreated, "Created container "+c.Name)
	return id, nil
}

// failed reports a failure in the status and as an event. It returns err.
func (st *starter) failed(ctx context.Context, name, reason string, err error) error {
	if ctx.Err() == nil {
		st.state.wait(name, reason, err.Error())
		st.Events.Warning(st.ref, reasonFailed, fmt.Sprintf("Error: %v", err))
	}
	return err
}
