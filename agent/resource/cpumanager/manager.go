package cpumanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/cpumanager/policy"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/cgroups"
)

// Config configures a Manager. All fields are required unless stated otherwise.
type Config struct {
	Kubelet *kubelet.KubeletConfiguration
	// Root is the sysfs directory of the machine's CPUs; "" means DefaultRoot.
	Root string
	// File is the path of the state file. Its directory may be missing.
	File    string
	Runtime interface {
		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
		ContainerStatus(ctx context.Context, containerID string) (*runtimeapi.ContainerStatus, error)
		UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.LinuxContainerResources) error
	}
	// Tree may be nil. Then only the runtime reports and updates cpusets.
	Tree *cgroups.Tree
	// Node returns criconfig's node; ok is false while it is not known.
	Node func() (n *criconfig.Node, ok bool)
	// Pods returns the pods of the node. The Manager does not change them. Notify
	// registers a slot, which is filled when a pod has changed or a container was started.
	Pods   func() []pod.Entry
	Notify func(slot chan<- struct{}) (cancel func())
	Events interface {
		Warning(ref pod.Ref, reason, message string)
	}
	Log *slog.Logger
}

// Manager manages the node's CPUs. Its methods are safe for concurrent use. A nil
// Manager is the policy none: it assigns nothing, rejects nothing and writes no
// metrics.
type Manager struct {
	cfg      Config
	settings settings
	// quota means that CPU quotas also apply to containers with exclusive CPUs (the
	// gate DisableCPUQuotaWithExclusiveCPUs is off).
	quota     bool
	triggered wait.Wakeup // Run checks the cpusets

	restoring sync.Mutex // taken before mu
	mu        sync.Mutex
	policy    *policy.Policy // nil until it is restored
	saved     string         // content of the file
	unsaved   bool           // the file is out of date

	requested, rejected atomic.Uint64 // numbers of pods

	// Only Run touches these.
	cpusets        map[string]policy.Set // by the ID of a running container
	failed         map[string]int        // failed updates by container ID
	retryScheduled bool                  // a retry of the failed updates is scheduled
}

// New returns the Manager for the configuration, or nil for the policy none. It
// returns an error if the settings do not fit the machine. It starts nothing and does
// not read the state file.
func New(c Config) (*Manager, error) {
	if c.Kubelet.CPUManagerPolicy != policy.Static {
		return nil, nil
	}
	s, err := readSettings(c.Kubelet, cmp.Or(c.Root, DefaultRoot))
	if err != nil {
		return nil, err
	}
	if c.Tree != nil {
		missing, err := c.Tree.Missing("cpuset")
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("%w: cpuset; use another kernel or cpuManagerPolicy none", cgroups.ErrController)
		}
		if err != nil {
			return nil, fmt.Errorf("cpuManagerPolicy %s: %w", policy.Static, err)
		}
	}
	gate, set := c.Kubelet.FeatureGates["DisableCPUQuotaWithExclusiveCPUs"]
	return &Manager{
		cfg: c, settings: s, quota: set && !gate, triggered: wait.NewWakeup(),
		cpusets: make(map[string]policy.Set), failed: make(map[string]int),
	}, nil
}

// Allocate assigns exclusive CPUs to the pod's containers that request them and have
// none, and returns when the assignment is on disk. It returns a
// *policy.AdmissionError if there are not enough CPUs; then nothing has changed. After
// any other error the caller must retry before a container runs. Until a call has
// restored the state, calls block on the runtime, later ones only on the disk.
func (m *Manager) Allocate(ctx context.Context, p *v1.Pod) error {
	if m == nil {
		return nil
	}
	if err := m.ensureRestored(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	asks, lacks := m.needsCPUs(p)
	if !asks || !lacks && !m.unsaved {
		return nil
	}
	if lacks {
		m.requested.Add(1)
		if err := m.policy.AllocatePod(p); err != nil {
			m.rejected.Add(1)
			return admissionError(err)
		}
	}
	if err := m.save(); err != nil {
		return fmt.Errorf("save CPU state before the pod starts: %w", err)
	}
	m.triggered.Set()
	return nil
}

// needsCPUs reports whether a container of the pod requests exclusive CPUs, and whether
// one of these has none yet. The caller must hold the lock.
func (m *Manager) needsCPUs(p *v1.Pod) (asks, lacks bool) {
	for c, kind := range pod.Containers(&p.Spec) {
		if kind == pod.Ephemeral || policy.RequestedCPUs(p, c) == 0 {
			continue
		}
		asks = true
		if _, has := m.policy.Exclusive(p.UID, c.Name); !has {
			return true, true
		}
	}
	return asks, false
}

// admissionError formats an error of the policy as the kubelet does
// (pkg/kubelet/cm/admission/errors.go).
func admissionError(err error) error {
	r := new(policy.AdmissionError)
	if !errors.As(err, &r) || r.Reason != policy.ReasonUnexpected {
		return err
	}
	return &policy.AdmissionError{Reason: r.Reason, Message: "Allocate failed due to " + r.Message + ", which is unexpected"}
}

// Release frees the CPUs of the pod's containers. No container of the pod may be
// running.
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
		m.cfg.Log.Warn("cannot save CPU state of removed pod", "podUID", uid, "error", err)
	}
	m.triggered.Set()
}

// CPUSet returns the CPUs that a container must run on, in the kernel's list format, or
// "" for no restriction.
func (m *Manager) CPUSet(uid types.UID, container string) string {
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

// IgnoresQuota reports whether no CPU quota applies to the container because it has
// exclusive CPUs. With the container name "" it reports whether no quota applies to
// the pod because any of its containers has exclusive CPUs.
func (m *Manager) IgnoresQuota(uid types.UID, container string) bool {
	if m == nil || m.quota {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policy == nil {
		return false
	}
	if container == "" {
		return m.policy.HasExclusive(uid)
	}
	_, alone := m.policy.Exclusive(uid, container)
	return alone
}
