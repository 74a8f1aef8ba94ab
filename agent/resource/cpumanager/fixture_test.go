package cpumanager

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// machine writes the CPU files of sysfs, and returns their directory.
func machine(t *testing.T, online string, siblings map[int]string) string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "online"), online+"\n")
	for cpu, list := range siblings {
		write(t, filepath.Join(root, fmt.Sprint("cpu", cpu), "topology", "thread_siblings_list"), list+"\n")
	}
	return root
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// board is a node with four CPUs, of which 0 is reserved, and its runtime, whose
// containers have the IDs POD-CONTAINER.
type board struct {
	t      *testing.T
	k      kubelet.KubeletConfiguration
	root   string // of the CPUs
	dir    string
	tree   *cgroups.Tree
	events []string

	mu      sync.Mutex
	on      map[string]string // cpuset.cpus by ID, as the runtime has it
	pods    []pod.Entry
	broken  error           // of updates
	noSwap  bool            // the kernel does not account it
	update  func(id string) // is called by an update, nil is nothing
	away    error           // of all calls
	updates int
	slots   map[chan<- struct{}]bool
}

func newBoard(t *testing.T) *board {
	t.Helper()
	b := &board{t: t, root: machine(t, "0-3", nil), dir: t.TempDir(), on: map[string]string{}, slots: map[chan<- struct{}]bool{}}
	b.k.CPUManagerPolicy, b.k.ReservedSystemCPUs = "static", "0"
	return b
}

// start starts a Manager, as after a restart of the agent.
func (b *board) start() *Manager {
	b.t.Helper()
	m, err := New(Config{
		Kubelet: &b.k, Root: b.root, File: b.file(), Runtime: b, Tree: b.tree, Events: b, Log: slog.New(slog.DiscardHandler),
		Node: func() (*criconfig.Node, bool) { return &criconfig.Node{SwapAccounting: !b.noSwap}, true },
		Pods: b.list, Notify: b.notify,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *board) file() string { return filepath.Join(b.dir, "tinylet", "cpus.json") }

func (b *board) Warning(_ pod.Ref, reason, message string) {
	b.events = append(b.events, reason+": "+message)
}

func (b *board) list() []pod.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pods)
}

func (b *board) notify(slot chan<- struct{}) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots[slot] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.slots, slot)
	}
}

// changed notifies of a changed status.
func (b *board) changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for slot := range b.slots {
		select {
		case slot <- struct{}{}:
		default:
		}
	}
}

// wants adds a Guaranteed pod whose containers, a, b and so on, request the given
// CPUs.
func (b *board) wants(name string, cpus ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	for i, amount := range cpus {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount), v1.ResourceMemory: resource.MustParse("8Mi")}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: string(rune('a' + i)), Resources: v1.ResourceRequirements{Requests: list, Limits: list},
		})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods = append(b.pods, pod.Entry{Pod: p, Status: &v1.PodStatus{Phase: v1.PodPending}})
	return p
}

// runs starts all containers of the pod on the CPUs that m returns.
func (b *board) runs(m *Manager, p *v1.Pod) {
	b.mu.Lock()
	s := &v1.PodStatus{Phase: v1.PodRunning}
	for i := range p.Spec.Containers {
		name := p.Spec.Containers[i].Name
		id := p.Name + "-" + name
		b.on[id] = m.CPUSet(p.UID, name)
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{
			Name: name, ContainerID: "containerd://" + id, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		})
	}
	for i := range b.pods {
		if b.pods[i].Pod == p {
			b.pods[i].Status, b.pods[i].Started = s, nil
		}
	}
	b.mu.Unlock()
	b.changed()
}

// started starts a container that the pod's status does not show yet.
func (b *board) started(p *v1.Pod, name, id, on string) {
	b.mu.Lock()
	b.on[id] = on
	for i := range b.pods {
		if b.pods[i].Pod == p {
			b.pods[i].Started = []pod.RunningContainer{{Name: name, ID: id}}
		}
	}
	b.mu.Unlock()
	b.changed()
}

// ends removes a pod.
func (b *board) ends(m *Manager, p *v1.Pod) {
	b.mu.Lock()
	b.pods = slices.DeleteFunc(b.pods, func(q pod.Entry) bool { return q.Pod == p })
	maps.DeleteFunc(b.on, func(id, _ string) bool { return id[:len(p.Name)+1] == p.Name+"-" })
	b.mu.Unlock()
	m.Release(p.UID)
	b.changed()
}

// breaks makes updates fail from now on; nil ends that.
func (b *board) breaks(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
}

// updated returns how often containers were updated.
func (b *board) updated() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.updates
}

// where returns cpuset.cpus of all containers.
func (b *board) where() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.on)
}

func (b *board) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*runtimeapi.Container
	for _, id := range slices.Sorted(maps.Keys(b.on)) {
		all = append(all, &runtimeapi.Container{Id: id, Labels: map[string]string{
			container.LabelPodUID: id[:len(id)-2], container.LabelContainerName: id[len(id)-1:],
		}})
	}
	return all, b.away
}

func (b *board) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, known := b.on[id]
	switch {
	case b.away != nil:
		return nil, b.away
	case !known:
		return nil, container.ErrNotFound
	}
	return &runtimeapi.ContainerStatus{Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: list}}}, nil
}

func (b *board) UpdateContainerResources(_ context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.updates++
	if b.update != nil {
		b.update(id)
	}
	if b.broken != nil {
		return b.broken
	}
	if _, known := b.on[id]; !known {
		return container.ErrNotFound
	}
	b.on[id] = r.GetCpusetCpus()
	return nil
}
