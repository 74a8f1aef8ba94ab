package cpumanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/cpumanager/policy"
	"github.com/tinylet/tinylet/cgroups"
)

// Pod is a pod of the node, by its newest status; neither is changed.
type Pod struct {
	Pod    *v1.Pod
	Status *v1.PodStatus
	// Running are the IDs of the containers that run, by name, also of those
	// that the status does not show yet.
	Running map[string]string
}

// Config is what a Manager works with. All fields are required but those that
// say otherwise.
type Config struct {
	Kubelet *kubelet.KubeletConfiguration
	// Root is where the machine's CPUs are shown; "" is DefaultRoot.
	Root string
	// File is what the state is kept in; its folder may be missing.
	File    string
	Runtime interface {
		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
		ContainerStatus(ctx context.Context, containerID string) (*runtimeapi.ContainerStatus, error)
		UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.LinuxContainerResources) error
	}
	// Tree is nil where the runtime alone knows where containers run.
	Tree *cgroups.Tree
	// Node is criconfig's, and ok false while it is not known.
	Node func() (n *criconfig.Node, ok bool)
	// Pods lists the pods of the node, Notify fills a slot when one of them has
	// changed or one of their containers was started.
	Pods   func() []Pod
	Notify func(slot chan<- struct{}) (cancel func())
	Events interface {
		Warning(ref pod.Ref, reason, message string)
	}
	Log *slog.Logger
}

// Manager is the owner of the node's CPUs. Its methods are safe for concurrent
// use. A nil Manager is that of the policy none: it gives nothing, refuses
// nothing and says nothing.
type Manager struct {
	cfg      Config
	settings settings
	// quota says that the quota of CPU time holds also for those that are alone
	// on their CPUs (the gate DisableCPUQuotaWithExclusiveCPUs is off).
	quota bool
	sign  chan struct{}

	restoring sync.Mutex // taken before mu
	mu        sync.Mutex
	policy    *policy.Policy // nil before it is restored
	saved     string         // what the file has
	unsaved   bool           // the file lacks something

	asked, refused atomic.Uint64 // pods

	// Only Run touches these.
	on      map[string]policy.Set // by the ID of a container that runs
	failed  map[string]int        // how often one could not be moved
	waiting bool                  // for the time to try them again
}

// New makes the Manager that the configuration asks for: nil with the policy
// none. It fails for settings that do not fit the machine. Nothing is started,
// and the file is not read yet.
func New(c Config) (*Manager, error) {
	if c.Kubelet.CPUManagerPolicy != policy.Static {
		return nil, nil
	}
	if c.Root == "" {
		c.Root = DefaultRoot
	}
	s, err := read(c.Kubelet, c.Root)
	if err != nil {
		return nil, err
	}
	if c.Tree != nil {
		missing, err := c.Tree.Missing("cpuset")
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("%w: cpuset; use another kernel, or cpuManagerPolicy none", cgroups.ErrController)
		}
		if err != nil {
			return nil, fmt.Errorf("cpuManagerPolicy %s: %w", policy.Static, err)
		}
	}
	gate, set := c.Kubelet.FeatureGates["DisableCPUQuotaWithExclusiveCPUs"]
	return &Manager{
		cfg: c, settings: s, quota: set && !gate, sign: make(chan struct{}, 1),
		on: make(map[string]policy.Set), failed: make(map[string]int),
	}, nil
}

// Allocate gives the pod's containers the CPUs that they ask for alone, if
// they have not got them, and has that on the disk when it returns. It fails
// with a *policy.Refusal where there are none for them, and then nothing has
// changed, and with another error where it is to be tried again before any of
// them runs. At the first call it blocks on the runtime, and else on the disk
// alone.
func (m *Manager) Allocate(ctx context.Context, p *v1.Pod) error {
	if m == nil {
		return nil
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	asks, lacks := m.lacks(p)
	if !asks || !lacks && !m.unsaved {
		return nil
	}
	if lacks {
		m.asked.Add(1)
		if err := m.policy.AllocatePod(p); err != nil {
			m.refused.Add(1)
			return refusal(err)
		}
	}
	if err := m.save(); err != nil {
		return fmt.Errorf("keep the CPUs of the pod before it runs: %w", err)
	}
	m.look()
	return nil
}

// lacks says whether a container of the pod asks for CPUs of its own, and
// whether one has not got them. It needs the lock.
func (m *Manager) lacks(p *v1.Pod) (asks, lacks bool) {
	for c, kind := range pod.Containers(&p.Spec) {
		if kind == pod.Ephemeral || policy.Asked(p, c) == 0 {
			continue
		}
		asks = true
		if _, has := m.policy.Exclusive(p.UID, c.Name); !has {
			return true, true
		}
	}
	return asks, false
}

// refusal words one as a kubelet does (pkg/kubelet/cm/admission/errors.go).
func refusal(err error) error {
	r := new(policy.Refusal)
	if !errors.As(err, &r) || r.Reason != policy.ReasonUnexpected {
		return err
	}
	return &policy.Refusal{Reason: r.Reason, Message: "Allocate failed due to " + r.Message + ", which is unexpected"}
}

// Release takes back what the pod's containers have. Nothing of it may run any
// more.
func (m *Manager) Release(uid types.UID) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policy == nil || m.policy.Release(uid).IsEmpty() {
		return
	}
	if err := m.save(); err != nil {
		m.cfg.Log.Warn("CPUs of a pod that is gone stay in the file until it is written again", "podUID", uid, "error", err)
	}
	m.look()
}

// For is the list of the CPUs that a container is to run on, by the kernel's
// format, and "" where nobody cares.
func (m *Manager) For(uid types.UID, container string) string {
	if m == nil {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policy == nil {
		return ""
	}
	return m.policy.CPUs(uid, container).String()
}

// Unbounded says whether a quota of CPU time is not to hold for the container,
// since it is alone on its CPUs, or, with the name "", for the pod, since a
// container of it is.
func (m *Manager) Unbounded(uid types.UID, container string) bool {
	if m == nil || m.quota {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policy == nil {
		return false
	}
	if container == "" {
		return m.policy.Holds(uid)
	}
	_, alone := m.policy.Exclusive(uid, container)
	return alone
}

// look has Run look at where containers are.
func (m *Manager) look() {
	select {
	case m.sign <- struct{}{}:
	default:
	}
}
