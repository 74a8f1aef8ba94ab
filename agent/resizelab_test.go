package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// sized is a pod of the API server whose one container has the amounts of
// cpu and memory as requests and limits.
func sized(t *testing.T, name, cpu, memory string) *v1.Pod {
	t.Helper()
	p := shell(t, name, "Always", "sleep infinity")
	delete(p.Annotations, pod.AnnotationSource)
	return grown(p, cpu, memory)
}

// grown is the pod after a request for another size.
func grown(p *v1.Pod, cpu, memory string) *v1.Pod {
	p = p.DeepCopy()
	p.Generation++
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
	return p
}

func restartFor(p *v1.Pod, name v1.ResourceName) *v1.Pod {
	p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: name, RestartPolicy: v1.RestartContainer}}
	return p
}

// sizes is a lab of pods of the API server on a node of 1 CPU and 256 MiB. Its
// cgroups, where it has some, are plain files, of the groups that a test has
// made.
type sizes struct {
	*lab
	groups string // empty is none
	noSwap bool   // the kernel does not account it
}

func sizing(t *testing.T, test func(t *testing.T, l *sizes)) {
	t.Helper()
	bubble(t, func(t *testing.T, l *lab) {
		s := &sizes{lab: l}
		l.api = true
		l.prepare = s.prepareAgent
		test(t, s)
	})
}

func (l *sizes) prepareAgent(agent *agent) {
	s := agent.syncer
	s.AdmitNode = func() *nodeinfo.Admission {
		return &nodeinfo.Admission{Name: "board", OS: "linux", MaxPods: 10, Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("256Mi"),
		}}
	}
	node, peek := s.Node, s.PeekNode
	of := func(n *criconfig.Node) *criconfig.Node {
		if n != nil {
			n = new(*n)
			n.SwapAccounting = !l.noSwap
			n.MemoryAccounting, n.MemoryQoS, n.MemoryThrottling = true, true, 0.9
		}
		return n
	}
	s.Node = func(ctx context.Context) (*criconfig.Node, error) { n, err := node(ctx); return of(n), err }
	s.PeekNode = func() (*criconfig.Node, bool) { n, ok := peek(); return of(n), ok }
	if l.groups != "" {
		tree, err := cgroups.Open(l.groups)
		if err != nil {
			l.t.Fatal(err)
		}
		s.Cgroups, s.Runtime = tree, kernel{l.runtime, l}
	}
}

// kernel is the runtime together with the cgroups that it writes. Without
// accounting of swap it is one that writes a memory limit and then fails.
type kernel struct {
	*fake.Runtime
	l *sizes
}

func (k kernel) StartContainer(ctx context.Context, id string) error {
	err := k.Runtime.StartContainer(ctx, id)
	if group, r := k.of(id); err == nil {
		k.l.group(group)
		k.write(group, r)
	}
	return err
}

func (k kernel) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	group, _ := k.of(id)
	if k.l.noSwap && r.GetMemoryLimitInBytes() > 0 {
		k.l.put(group+"/memory.max", fmt.Sprint(r.GetMemoryLimitInBytes()))
		return errors.New("open memory.swap.max: No such file or directory")
	}
	_, before := k.of(id)
	err := k.Runtime.UpdateContainerResources(ctx, id, r)
	if _, after := k.of(id); !proto.Equal(before, after) { // also where the answer is lost
		after.Unified = nil
		k.write(group, after)
	}
	return err
}

func (k kernel) of(id string) (group string, r *runtimeapi.LinuxContainerResources) {
	for _, c := range k.l.runtime.AllContainers() {
		if c.GetId() == id {
			return "kubepods/pod" + c.GetLabels()["io.kubernetes.pod.uid"] + "/" + id, c.GetResources().GetLinux()
		}
	}
	return "kubepods/none", nil
}

func (k kernel) write(group string, r *runtimeapi.LinuxContainerResources) {
	k.l.put(group+"/cpu.weight", fmt.Sprint(criconfig.CurvedCPUWeight(r.GetCpuShares())))
	k.l.put(group+"/cpu.max", fmt.Sprintf("%d %d\n", r.GetCpuQuota(), r.GetCpuPeriod()))
	k.l.put(group+"/memory.max", fmt.Sprint(r.GetMemoryLimitInBytes()))
	for file, content := range r.GetUnified() {
		k.l.put(group+"/"+file, content)
	}
}

// begin starts an agent whose API server has the pods.
func (l *sizes) begin(pods ...*v1.Pod) {
	l.t.Helper()
	l.wanted = pods
	l.start()
	l.settle(5 * time.Second)
}

// ask has the API server's pods changed, and lets five seconds pass.
func (l *sizes) ask(pods ...*v1.Pod) {
	l.t.Helper()
	l.want(pods...)
	l.settle(5 * time.Second)
}

// withGroups gives the node cgroups for the pods, which are Guaranteed.
func (l *sizes) withGroups(pods ...*v1.Pod) {
	l.t.Helper()
	l.groups = l.t.TempDir()
	for _, group := range []string{"", "kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		l.group(group)
	}
	for _, p := range pods {
		l.group("kubepods/pod" + string(p.UID))
	}
}

// group makes a cgroup, as the kernel does.
func (l *sizes) group(path string) {
	l.t.Helper()
	dir := filepath.Join(l.groups, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		l.t.Fatal(err)
	}
	for name, content := range map[string]string{
		"cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": "cpu memory pids\n",
		"cpu.weight": "100\n", "cpu.max": "max 100000\n", "memory.max": "max\n", "memory.current": "1048576\n", "memory.min": "0\n", "memory.low": "0\n", "memory.high": "max\n", "pids.max": "max\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			l.t.Fatal(err)
		}
	}
}

// groupOf is the pod's cgroup, containerOf that of its running container.
func (l *sizes) groupOf(p *v1.Pod) string { return "kubepods/pod" + string(p.UID) }

func (l *sizes) containerOf(p *v1.Pod) string {
	return l.groupOf(p) + "/" + l.running()[p.Name+"/c0"]
}

func (l *sizes) put(file, content string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.groups, file), []byte(content), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l *sizes) get(file string) string {
	l.t.Helper()
	content, err := os.ReadFile(filepath.Join(l.groups, file))
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

// has is what the runtime has of the pod's running container: CPU in
// thousandths, shares and MiB.
func (l *sizes) has(p *v1.Pod) string {
	l.t.Helper()
	id := l.running()[p.Name+"/c0"]
	for _, c := range l.runtime.AllContainers() {
		if r := c.GetResources().GetLinux(); c.GetId() == id {
			return fmt.Sprintf("%dm %d %dMi", r.GetCpuQuota()/100, r.GetCpuShares(), r.GetMemoryLimitInBytes()>>20)
		}
	}
	return "nothing"
}

// files are what the cgroups of the pod and of its container say.
func (l *sizes) files(p *v1.Pod) string {
	l.t.Helper()
	pod, c := l.groupOf(p), l.containerOf(p)
	return fmt.Sprintf("%s %s %s, %s %s", l.get(pod+"/cpu.weight"), l.get(pod+"/cpu.max"), l.get(pod+"/memory.max"), l.get(c+"/cpu.max"), l.get(c+"/memory.max"))
}

// shows is what the pod's status says its container has and was allocated.
func (l *sizes) shows(p *v1.Pod) string {
	l.t.Helper()
	st := l.status(p.UID)
	if len(st.ContainerStatuses) == 0 || st.ContainerStatuses[0].Resources == nil {
		return "nothing"
	}
	c := st.ContainerStatuses[0]
	return fmt.Sprintf("%v/%v %v/%v of %v %v", c.Resources.Requests.Cpu(), c.Resources.Limits.Cpu(), c.Resources.Requests.Memory(),
		c.Resources.Limits.Memory(), c.AllocatedResources.Cpu(), c.AllocatedResources.Memory())
}

// conditions are those of resizes, as type=reason@generation.
func (l *sizes) conditions(p *v1.Pod) string {
	l.t.Helper()
	var out []string
	for _, c := range l.status(p.UID).Conditions {
		if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			out = append(out, fmt.Sprintf("%s=%s@%d", c.Type, c.Reason, c.ObservedGeneration))
		}
	}
	return strings.Join(out, " ")
}

// told are the events of resizes of a pod, each with the beginning of its
// message.
func (l *sizes) told(p *v1.Pod) string {
	var out []string
	for _, e := range l.agent.events.Recent() {
		if message, _, _ := strings.Cut(e.Message, ":"); e.Pod.Name == p.Name && strings.HasPrefix(e.Reason, "Resize") {
			out = append(out, e.Reason+" ("+message+")")
		}
	}
	return strings.Join(out, ", ")
}

// deafRuntime takes updates and does nothing.
type deafRuntime struct {
	*fake.Runtime
	updates *int
}

func (d deafRuntime) UpdateContainerResources(context.Context, string, *runtimeapi.LinuxContainerResources) error {
	*d.updates++
	return nil
}

// resizedTo checks what the pod's status shows, that its resize is over, and
// how often its container was restarted.
func (l *sizes) resizedTo(p *v1.Pod, shows string, restarts int32) {
	l.t.Helper()
	if got := l.shows(p); got != shows {
		l.t.Errorf("%s shows %s, want %s", p.Name, got, shows)
	}
	if got := l.conditions(p); got != "" {
		l.t.Errorf("%s has the conditions %s", p.Name, got)
	}
	st := l.status(p.UID)
	if st.Phase != v1.PodRunning || st.ContainerStatuses[0].RestartCount != restarts {
		l.t.Errorf("%s is %s after %d restarts, want %d", p.Name, st.Phase, st.ContainerStatuses[0].RestartCount, restarts)
	}
}
