package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/stats"
	"github.com/tinylet/tinylet/cgroups"
)

// figures are what the node and its pods use, read when somebody asks.
type figures struct {
	stats   *stats.Stats
	view    *view
	machine machine.Info
}

// newFigures makes the figures of a node with cgroups; there are none without.
func newFigures(cfg *config.Config, view *view, p *parts, log *slog.Logger) (*figures, error) {
	if view.tree == nil {
		return nil, nil
	}
	f := &figures{view: view, machine: machine.ReadInfo(machine.Roots{})}
	c := stats.Config{
		Node: cfg.NodeName, Groups: view.tree, Machine: f.readMachine, SystemContainers: f.system,
		Pods: f.pods, AfterRead: p.looked,
		Network: f.network, PodDisk: p.podDisk, NodeDisk: p.disks.Node, Device: rootDevice(cfg.Paths.Root), Log: log,
	}
	var err error
	f.stats, err = stats.New(c)
	return f, err
}

func (f *figures) readMachine() (stats.Machine, error) {
	l, err := machine.ReadLoad(machine.Roots{}, time.Now())
	if err != nil {
		return stats.Machine{}, err
	}
	return stats.Machine{
		MachineID: f.machine.MachineID, SystemUUID: f.machine.SystemUUID, BootID: f.machine.BootID,
		Boot: l.Boot, Cores: runtime.NumCPU(), Memory: l.Memory, SwapTotal: l.SwapTotal, SwapFree: l.SwapFree,
		MaxTasks: l.MaxTasks, Tasks: l.Tasks,
	}, nil
}

// system are the groups beside the pods'. Where all pods are depends on the
// runtime's driver, and in the root the agent has no group of its own.
func (f *figures) system() []stats.SystemContainer {
	var groups []stats.SystemContainer
	if n, ok := f.view.node.peek(); ok {
		groups = append(groups, stats.SystemContainer{Name: statsapi.SystemContainerPods, Cgroup: criconfig.QoSCgroup(v1.PodQOSGuaranteed, n)})
	}
	if own, ok := cgroups.Own(); ok && own != "/" && !strings.HasPrefix(own, "/..") { // that is out of sight
		groups = append(groups, stats.SystemContainer{Name: statsapi.SystemContainerKubelet, Cgroup: own})
	}
	return groups
}

// pods are those that have a sandbox: of two with one name, the one that takes
// the other's place, once it has one.
func (f *figures) pods(context.Context) ([]stats.Pod, error) {
	n, ok := f.view.node.peek()
	if !ok {
		return nil, errNotTold
	}
	entries := f.view.statuses.List()
	out := make([]stats.Pod, 0, len(entries))
	var last *v1.Pod
	for i := range entries {
		e := &entries[i]
		if e.Sandbox.ID == "" {
			continue
		}
		if last != nil && last.Name == e.Pod.Name && last.Namespace == e.Pod.Namespace {
			if !pod.Newer(e.Pod, last) {
				continue
			}
			out = out[:len(out)-1]
		}
		out, last = append(out, statsPod(e, n)), e.Pod
	}
	return out, nil
}

// errNotTold is why there are no cgroups of pods yet.
var errNotTold = errors.New("the runtime has not told yet which cgroups its containers have: ask again when it answers")

// pauseImage stands for the image of a sandbox: dashboards want one, and what
// it is in truth only the runtime could tell.
const pauseImage = "pause"

func statsPod(e *pod.Entry, n *criconfig.Node) stats.Pod {
	cgroup := criconfig.PodCgroup(e.Pod, n)
	p := stats.Pod{
		Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: string(e.Pod.UID), Cgroup: cgroup,
		Sandbox: stats.Sandbox{
			ID: e.Sandbox.ID, Image: pauseImage, Start: e.Sandbox.Since, Cgroup: criconfig.ContainerCgroup(cgroup, e.Sandbox.ID, n),
		},
	}
	for c := range pod.ContainerStatuses(e.Status) {
		id := idOf(c)
		if id == "" || c.State.Running == nil {
			continue
		}
		p.Containers = append(p.Containers, stats.Container{
			Name: c.Name, ID: id, Image: imageOf(e.Pod, c), Start: c.State.Running.StartedAt.Time,
			Cgroup: criconfig.ContainerCgroup(cgroup, id, n),
		})
	}
	return p
}

// imageOf is the name of a container's image, never empty.
func imageOf(p *v1.Pod, c *v1.ContainerStatus) string {
	if c.Image != "" {
		return c.Image
	}
	if spec, _ := pod.FindContainer(&p.Spec, c.Name); spec != nil && spec.Image != "" {
		return spec.Image
	}
	return c.Name
}

// network reads a pod's interfaces by way of one of its processes, which costs
// three small reads and no namespace of a thread to be changed.
func (f *figures) network(_ context.Context, p *stats.Pod, to []stats.Interface) ([]stats.Interface, error) {
	if p == nil {
		dev, err := os.ReadFile("/proc/self/net/dev")
		if err != nil {
			return to, fmt.Errorf("read the node's network counters: %w", err)
		}
		return stats.AppendInterfaces(dev, to), nil
	}
	e, ok := f.view.statuses.Entry(types.UID(p.UID))
	if !ok || e.Pod.Spec.HostNetwork || e.Sandbox.HostNetwork {
		return to, nil
	}
	groups := []string{p.Sandbox.Cgroup}
	for i := range p.Containers {
		groups = append(groups, p.Containers[i].Cgroup)
	}
	for _, group := range groups {
		pid, group, err := f.process(group)
		if errors.Is(err, cgroups.ErrNotFound) || err == nil && pid == 0 {
			continue
		}
		if err != nil {
			return to, err
		}
		dev, err := netDevOf("/proc", pid, group)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return to, fmt.Errorf("read network counters of pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		return stats.AppendInterfaces(dev, to), nil
	}
	return to, nil
}

// process is a process of a container's group, and the group that has it.
func (f *figures) process(group string) (pid int, in string, err error) {
	in = f.view.tree.Payload(group)
	pid, err = f.view.tree.Process(in)
	return pid, in, err
}

// netDevOf reads PID/net/dev below /proc of a process in a group. Both are read
// below one open folder, which a later process with that ID does not have:
// else a process of another pod could stand for this one.
func netDevOf(from string, pid int, group string) ([]byte, error) {
	proc, err := os.OpenRoot(from + "/" + strconv.Itoa(pid))
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	in, err := readProc(proc, "cgroup")
	if err != nil {
		return nil, err
	}
	if path, _ := cgroups.ParseOwn(string(in)); path != group && !strings.HasPrefix(path, group+"/") {
		return nil, fs.ErrNotExist
	}
	return readProc(proc, "net/dev")
}

// readProc reads a file of a process. That the process has ended is
// fs.ErrNotExist.
func readProc(proc *os.Root, name string) ([]byte, error) {
	file, err := proc.Open(name)
	if err != nil {
		return nil, ended(err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, 64<<10))
	return data, ended(err)
}

// ended makes one error of all that the kernel says of a process that is gone
// or about to be (fs/proc/base.c and proc_net.c of Linux).
func ended(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return fs.ErrNotExist
	}
	return err
}

// rootDevice is the disk or partition that the agent's folder is on, as
// /dev/NAME, and /dev/root where that is no block device or cannot be told.
func rootDevice(folder string) string {
	const unknown = "/dev/root"
	var st unix.Stat_t
	if unix.Stat(folder, &st) != nil {
		return unknown
	}
	dev := uint64(st.Dev) //nolint:unconvert // 32 bits wide on some architectures
	data, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/uevent", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return unknown
	}
	for line := range bytes.Lines(data) {
		if name, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("DEVNAME=")); ok {
			return "/dev/" + string(name)
		}
	}
	return unknown
}
