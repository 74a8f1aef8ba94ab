package oom

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// node is a fake kernel with plain files, and the pods on it.
type node struct {
	t      *testing.T
	root   string
	driver string
	kernel uint64 // oom_kill of vmstat
	pods   []pod.Entry
	events []string
	woken  []types.UID
	w      *Watcher
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, root: t.TempDir(), driver: criconfig.DriverCgroupfs}
	n.group("/", counts{})
	if err := os.Remove(filepath.Join(n.root, "memory.events")); err != nil { // a machine's root has none
		t.Fatal(err)
	}
	n.group("/kubepods", counts{})
	n.vmstat(0)
	return n
}

// start starts a Watcher. Earlier counts belong to its baseline.
func (n *node) start() {
	n.t.Helper()
	tree, err := cgroups.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	n.w = New(Config{
		Tree: tree, Node: n.peek, Pods: func() []pod.Entry { return n.pods }, Events: n,
		Wake:   func(uid types.UID) { n.woken = append(n.woken, uid) },
		VMStat: filepath.Join(n.root, "vmstat"), Log: slog.New(slog.DiscardHandler),
	})
	n.w.Check()
}

func (n *node) peek() (*criconfig.Node, bool) {
	return &criconfig.Node{CgroupDriver: n.driver}, n.driver != ""
}

func (n *node) Warning(ref pod.Ref, reason, message string) {
	n.events = append(n.events, fmt.Sprintf("%s %s: %s", ref.Name, reason, message))
}

// group writes the counters of a cgroup.
func (n *node) group(path string, c counts) {
	n.t.Helper()
	dir := filepath.Join(n.root, path)
	text := fmt.Sprintf("low 0\nhigh 0\nmax 9\noom %d\noom_kill %d\noom_group_kill %d\n", c.oom, c.kills, c.groups)
	for name, content := range map[string]string{"cgroup.controllers": "memory\n", "memory.events": text} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
}

// met writes the limit hits of a cgroup itself.
func (n *node) met(path string, oom uint64) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.root, path, "memory.events.local"), []byte(fmt.Sprintf("low 0\nmax 9\noom %d\n", oom)), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) gone(path string) {
	n.t.Helper()
	if err := os.RemoveAll(filepath.Join(n.root, path)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) vmstat(kills uint64) {
	n.t.Helper()
	n.kernel = kills
	text := fmt.Sprintf("nr_free_pages 100\noom_kill %d\ndrop_slab 0\n", kills)
	if err := os.WriteFile(filepath.Join(n.root, "vmstat"), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// add adds a Burstable pod. Its containers are named a, b and so on, have the given
// memory limits ("" means none) and IDs NAME-0.
func (n *node) add(name string, limits ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = name, "default", types.UID("uid-"+name)
	p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile}
	s := &v1.PodStatus{}
	for i, limit := range limits {
		c := v1.Container{Name: string(rune('a' + i))}
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")}
		if limit != "" {
			c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit)}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{Name: c.Name, ContainerID: "containerd://" + c.Name + "-0"})
	}
	n.pods = append(n.pods, pod.Entry{Pod: p, Status: s})
	return p
}

// path returns the cgroup of a pod or of its container.
func (n *node) path(p *v1.Pod, id string) string {
	at, _ := n.peek()
	path := criconfig.PodCgroup(p, at)
	if id != "" {
		path = criconfig.ContainerCgroup(path, id, at)
	}
	return path
}

// told returns the events since the last call.
func (n *node) told() []string {
	all := n.events
	n.events = nil
	return all
}

func seen(containers ...container.Container) *container.Observed {
	return &container.Observed{Containers: containers}
}

func ended(id, name string, code int32, reason string) container.Container {
	return container.Container{ID: id, Name: name, State: container.StateExited, ExitCode: code, Reason: reason}
}

// reasons returns the reasons of the containers after Judge.
func (n *node) reasons(p *v1.Pod, o *container.Observed) (all []string) {
	n.t.Helper()
	for _, c := range n.w.SetReasons(p, o).Containers {
		all = append(all, c.Reason)
	}
	return all
}
