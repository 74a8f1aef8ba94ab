package stats

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

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/cgroups"
)

// SourceConfig configures a Source.
type SourceConfig struct {
	NodeName string
	// RootDir is the kubelet's root directory.
	RootDir  string
	Tree     *cgroups.Tree
	Node     *nodeinfo.Info
	Statuses *podstatus.Store
	Workers  *podworker.Workers
	Disks    *diskusage.Meter
	// AfterRead is as in Config.
	AfterRead func()
	Log       *slog.Logger
}

// Source is the Stats of this machine. For each request it reads the agent's pods, their
// cgroups and the machine.
type Source struct {
	*Stats
	SourceConfig
	machine machine.Info
}

// NewSource returns the Stats of this machine.
func NewSource(c SourceConfig) *Source {
	s := &Source{SourceConfig: c, machine: machine.ReadInfo(machine.Roots{})}
	s.Stats = New(Config{
		Node: c.NodeName, Groups: c.Tree, Machine: s.readMachine, SystemContainers: s.systemContainers,
		Pods: s.pods, AfterRead: c.AfterRead,
		Network: s.network, PodDisk: s.podDisk, NodeDisk: c.Disks.Node, Device: deviceOf(c.RootDir), Log: c.Log,
	})
	return s
}

func (s *Source) readMachine() (Machine, error) {
	load, err := machine.ReadLoad(machine.Roots{}, time.Now())
	return Machine{Info: s.machine, Load: load, Cores: runtime.NumCPU()}, err
}

// systemContainers returns the cgroup of all pods, which depends on the runtime's cgroup
// driver, and that of the agent unless it is the root cgroup.
func (s *Source) systemContainers() []SystemContainer {
	var groups []SystemContainer
	if n, ok := s.Node.Peek(); ok {
		groups = append(groups, SystemContainer{Name: statsapi.SystemContainerPods, Cgroup: criconfig.QoSCgroup(v1.PodQOSGuaranteed, n)})
	}
	if own, ok := cgroups.Own(); ok && own != "/" && !strings.HasPrefix(own, "/..") { // outside of the cgroup namespace
		groups = append(groups, SystemContainer{Name: statsapi.SystemContainerKubelet, Cgroup: own})
	}
	return groups
}

// pods returns the pods that have a sandbox. Of several pods of one name, which are adjacent
// in the list of statuses, it returns the newest.
func (s *Source) pods(context.Context) ([]Pod, error) {
	n, ok := s.Node.Peek()
	if !ok {
		return nil, errNoDriver
	}
	entries := s.Statuses.List()
	out := make([]Pod, 0, len(entries))
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
		out, last = append(out, podOf(e, n)), e.Pod
	}
	return out, nil
}

// errNoDriver means that the cgroups of pods are not known yet.
var errNoDriver = errors.New("the runtime has not reported its cgroup driver yet: retry when it responds")

// pauseImage is the image label of a sandbox. Dashboards need one, and only the runtime
// knows the real one.
const pauseImage = "pause"

func podOf(e *pod.Entry, n *criconfig.Node) Pod {
	cgroup := criconfig.PodCgroup(e.Pod, n)
	p := Pod{
		Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: string(e.Pod.UID), Cgroup: cgroup,
		Sandbox: Sandbox{
			ID: e.Sandbox.ID, Image: pauseImage, Start: e.Sandbox.Since, Cgroup: criconfig.ContainerCgroup(cgroup, e.Sandbox.ID, n),
		},
	}
	for c := range pod.ContainerStatuses(e.Status) {
		id := pod.ContainerID(c)
		if id == "" || c.State.Running == nil {
			continue
		}
		p.Containers = append(p.Containers, Container{
			Name: c.Name, ID: id, Image: imageOf(e.Pod, c), Start: c.State.Running.StartedAt.Time,
			Cgroup: criconfig.ContainerCgroup(cgroup, id, n),
		})
	}
	return p
}

// imageOf returns the name of a container's image, never "".
func imageOf(p *v1.Pod, c *v1.ContainerStatus) string {
	if c.Image != "" {
		return c.Image
	}
	if spec, _ := pod.FindContainer(&p.Spec, c.Name); spec != nil && spec.Image != "" {
		return spec.Image
	}
	return c.Name
}

// network reads the interfaces of a pod through one of its processes. That takes three
// small reads and does not change the network namespace of a thread.
func (s *Source) network(_ context.Context, p *Pod, to []Interface) ([]Interface, error) {
	if p == nil {
		dev, err := os.ReadFile("/proc/self/net/dev")
		if err != nil {
			return to, fmt.Errorf("read the node's network counters: %w", err)
		}
		return AppendInterfaces(dev, to), nil
	}
	e, ok := s.Statuses.Entry(types.UID(p.UID))
	if !ok || e.Pod.Spec.HostNetwork || e.Sandbox.HostNetwork {
		return to, nil
	}
	groups := []string{p.Sandbox.Cgroup}
	for i := range p.Containers {
		groups = append(groups, p.Containers[i].Cgroup)
	}
	for _, group := range groups {
		pid, group, err := s.process(group)
		if errors.Is(err, cgroups.ErrNotFound) || err == nil && pid == 0 {
			continue
		}
		if err != nil {
			return to, err
		}
		dev, err := netDevOf("/proc", pid, group)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has exited
		}
		if err != nil {
			return to, fmt.Errorf("read network counters of pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		return AppendInterfaces(dev, to), nil
	}
	return to, nil
}

// process returns a process of a container's cgroup, and the cgroup that contains it.
func (s *Source) process(group string) (pid int, in string, err error) {
	in = s.Tree.Payload(group)
	pid, err = s.Tree.Process(in)
	return pid, in, err
}

// netDevOf reads PID/net/dev of a process in a cgroup, below from, which is /proc. It reads
// the cgroup and the counters through one open directory: if the PID is reused by a process
// of another pod, the reads fail.
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

// readProc reads a file of a process. If the process has exited, it returns
// fs.ErrNotExist.
func readProc(proc *os.Root, name string) ([]byte, error) {
	file, err := proc.Open(name)
	if err != nil {
		return nil, exited(err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, 64<<10))
	return data, exited(err)
}

// exited maps the errors that the kernel returns for a process that has exited or is
// exiting to fs.ErrNotExist (fs/proc/base.c and proc_net.c of Linux).
func exited(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return fs.ErrNotExist
	}
	return err
}

// deviceOf returns the block device of a directory, such as /dev/mmcblk0p2, or /dev/root if
// that is not a block device or not known.
func deviceOf(folder string) string {
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

func (s *Source) podDisk(ctx context.Context, of *Pod) (diskusage.PodUsage, error) {
	names := make([]string, len(of.Containers))
	for i := range names {
		names[i] = of.Containers[i].Name
	}
	return s.Disks.Pod(ctx, of.UID, names)
}
