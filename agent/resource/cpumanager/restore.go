package cpumanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/cpumanager/policy"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/cgroups"
)

// reasonState is the reason of the node's event for an unusable state file.
const reasonState = "CPUStateDiscarded"

// ensureRestored restores the policy, once.
func (m *Manager) ensureRestored(ctx context.Context) error {
	m.restoring.Lock()
	defer m.restoring.Unlock()
	m.mu.Lock()
	done := m.policy != nil
	m.mu.Unlock()
	if done {
		return nil
	}
	live, err := m.livePods(ctx)
	if err != nil {
		return fmt.Errorf("read cpusets of running containers: %w", err)
	}
	saved := m.load()
	r, err := policy.Restore(saved, m.settings.topology, m.settings.reserved, m.settings.options, live)
	if err != nil {
		return fmt.Errorf("restore CPU state: %w", err)
	}
	m.logRestored(&r)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policy = r.Policy
	if err := m.save(); err != nil {
		m.policy = nil
		return fmt.Errorf("save CPU state: %w", err)
	}
	m.triggered.Set()
	return nil
}

// logRestored logs the differences from the saved state.
func (m *Manager) logRestored(r *policy.Restored) {
	for _, what := range r.Changed {
		m.cfg.Log.Warn("CPU configuration has changed", "change", what)
	}
	for _, d := range r.Dropped {
		m.cfg.Log.Info("dropped CPU assignment", "podUID", d.PodUID, "container", d.Name, "cpus", d.CPUs, "reason", d.Reason)
	}
	for _, c := range r.Adopted {
		m.cfg.Log.Info("adopted CPU assignment of running container", "podUID", c.PodUID, "container", c.Name, "cpus", c.CPUs)
	}
}

// livePods returns the pods that may hold CPUs: the desired pods that have not
// terminated, and all pods with running containers.
func (m *Manager) livePods(ctx context.Context) ([]policy.LivePod, error) {
	running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	containers, err := m.cfg.Runtime.ListContainers(ctx, running)
	if err != nil {
		return nil, err
	}
	var all []policy.LivePod
	at := make(map[types.UID]int)
	add := func(uid types.UID, p *v1.Pod) int {
		i, known := at[uid]
		if !known {
			i = len(all)
			at[uid] = i
			all = append(all, policy.LivePod{UID: uid, Pod: p, Running: make(map[string]policy.Set)})
		}
		return i
	}
	for _, p := range m.cfg.Pods() {
		if p.Status == nil || p.Status.Phase != v1.PodFailed && p.Status.Phase != v1.PodSucceeded {
			add(p.Pod.UID, p.Pod)
		}
	}
	for _, c := range containers {
		uid := types.UID(c.GetLabels()[container.LabelPodUID])
		if uid == "" {
			continue
		}
		set, err := m.cpusetOf(ctx, uid, c.GetId())
		if errors.Is(err, container.ErrNotFound) {
			continue // it has exited
		}
		if err != nil {
			return nil, err
		}
		all[add(uid, nil)].Running[c.GetLabels()[container.LabelContainerName]] = set
	}
	return all, nil
}

// cpusetOf returns the cpuset of a container, from its cgroup or else from the runtime.
func (m *Manager) cpusetOf(ctx context.Context, uid types.UID, id string) (policy.Set, error) {
	list, err := "", error(cgroups.ErrNotFound)
	m.eachCgroup(uid, id, func(path string) bool {
		list, err = m.cfg.Tree.CPUs(path)
		return err == nil
	})
	if err != nil {
		s, err := m.cfg.Runtime.ContainerStatus(ctx, id)
		if err != nil {
			return policy.Set{}, err
		}
		list = s.GetResources().GetLinux().GetCpusetCpus()
	}
	set, err := policy.Parse(list)
	if err != nil {
		m.cfg.Log.Warn("cannot parse container cpuset", "podUID", uid, "containerID", id, "error", err)
	}
	return set, nil
}

// eachCgroup calls try with each possible cgroup of the container until it returns true.
func (m *Manager) eachCgroup(uid types.UID, id string, try func(path string) bool) {
	node, ok := m.cfg.Node()
	if m.cfg.Tree == nil || !ok {
		return
	}
	for _, path := range criconfig.PodCgroups(uid, node) {
		if try(criconfig.ContainerCgroup(path, id, node)) {
			return
		}
	}
}

// load reads the state file. It reports an unusable file and treats it as missing.
func (m *Manager) load() policy.Saved {
	data, err := os.ReadFile(m.cfg.File)
	if errors.Is(err, fs.ErrNotExist) {
		return policy.Saved{}
	}
	var saved policy.Saved
	if err == nil {
		saved, err = policy.Decode(data)
	}
	if err != nil {
		m.cfg.Log.Error("cannot use CPU state file, rebuilding it", "file", m.cfg.File, "error", err)
		m.cfg.Events.Warning(pod.Ref{}, reasonState, fmt.Sprintf("%s: CPU assignments are restored from the running containers", err))
		return policy.Saved{}
	}
	m.mu.Lock()
	m.saved = string(data)
	m.mu.Unlock()
	return saved
}

// save writes the state file if the state has changed. The caller must hold the lock.
func (m *Manager) save() error {
	data, err := m.policy.Saved().Encode()
	if err != nil {
		return err
	}
	if string(data) != m.saved {
		if err := atomicfile.Write(m.cfg.File, data, 0o600); err != nil {
			m.unsaved = true
			return fmt.Errorf("write %s: %w", m.cfg.File, err)
		}
	}
	m.saved, m.unsaved = string(data), false
	return nil
}
