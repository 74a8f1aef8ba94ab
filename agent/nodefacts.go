package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/cgroups"
)

// nodeFacts is what the pods' configs need to know of the node. Most of it is
// read when it is needed: the runtime may not be up when the agent starts,
// and addresses and resolv.conf change under it.
type nodeFacts struct {
	cfg     *config.Config
	runtime container.RuntimeInfo

	told   atomic.Pointer[runtimeFacts] // nil until the runtime told them
	stale  atomic.Bool                  // the runtime may be another since
	joined atomic.Pointer[v1.Node]      // as the API server has it, nil until it told

	// What does not change while the agent runs.
	memory, swap          int64 // bytes
	unreserved            int64 // of the memory
	allocatable, enforced v1.ResourceList
	hugePages             []string
	accounting            accounting
	systemd               bool // it runs this system
	admission             *admission.Node

	mu    sync.Mutex // never held over a call that can block
	ips   []string
	ipsAt time.Time
}

func newNodeFacts(cfg *config.Config, runtime container.RuntimeInfo, tree *cgroups.Tree) (*nodeFacts, error) {
	f := &nodeFacts{cfg: cfg, runtime: runtime, accounting: accountingOf(tree)}
	k := &cfg.Kubelet
	roots := machine.Roots{Storage: cfg.Paths.Root}
	var err error
	capacity := machine.Capacity(roots, k.MaxPods)
	reserved := machine.Reserved{Kube: k.KubeReserved, System: k.SystemReserved, EvictionHard: k.EvictionHard}
	if f.allocatable, err = machine.Allocatable(capacity, reserved); err != nil {
		return nil, fmt.Errorf("what pods may use of the node: %w", err)
	}
	if f.enforced, err = machine.EnforcedAllocatable(capacity, reserved, roots); err != nil {
		return nil, fmt.Errorf("what pods may use of the node: %w", err)
	}
	f.unreserved = f.enforced.Memory().Value()
	if !slices.Contains(k.EnforceNodeAllocatable, enforcePods) {
		if f.enforced, err = machine.EnforcedAllocatable(capacity, machine.Reserved{}, roots); err != nil {
			return nil, fmt.Errorf("what pods may use of the node: %w", err)
		}
	}
	f.memory, f.swap = machine.Memory(roots), machine.Swap(roots)
	f.hugePages = hugePageSizes()
	f.systemd = cgroups.SystemdRuns("")
	f.admission = &admission.Node{
		Name:                 cfg.NodeName,
		Labels:               machine.Labels(cfg.NodeName, cfg.NodeLabels),
		Unconfirmed:          joins(cfg),
		Taints:               k.RegisterWithTaints,
		OS:                   goruntime.GOOS,
		Arch:                 goruntime.GOARCH,
		Allocatable:          f.allocatable,
		MaxPods:              int(k.MaxPods),
		AgentPorts:           cfg.ListenPorts(),
		Kernel:               kernelRelease(),
		AllowedUnsafeSysctls: k.AllowedUnsafeSysctls,
		AppArmor:             appArmor(),
	}
	return f, nil
}

// runtimeFacts is what the runtime says of itself.
type runtimeFacts struct {
	cgroupDriver string
	// recursive are the handlers, by name, that mount read-only recursively.
	recursive map[string]bool
	// noStrictGroups says that it cannot do supplementalGroupsPolicy Strict.
	noStrictGroups bool
}

// admit is what pods are checked against. Labels and taints are those that the
// API server has, where people and controllers change them, once it has told.
func (f *nodeFacts) admit() *admission.Node {
	told, joined := f.told.Load(), f.joined.Load()
	if joined == nil && (told == nil || !told.noStrictGroups) {
		return f.admission
	}
	n := *f.admission
	n.NoStrictSupplementalGroups = told != nil && told.noStrictGroups
	if joined != nil {
		n.Labels, n.Taints, n.Unconfirmed = joined.Labels, lastingTaints(joined), false
	}
	return &n
}

// lastingTaints leaves out those that controllers set for the node's state:
// they come and go between two looks at the Node, and the taint manager acts
// on them.
func lastingTaints(n *v1.Node) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t v1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
}

// registered takes the node as the API server has it.
func (f *nodeFacts) registered(n *v1.Node) { f.joined.Store(n) }

// slices says that the runtime's cgroup driver is systemd, as far as it has
// told.
func (f *nodeFacts) slices() bool {
	told := f.told.Load()
	return told != nil && told.cgroupDriver == criconfig.DriverSystemd
}

// recursiveReadOnly says whether a handler of the runtime mounts read-only
// recursively.
func (f *nodeFacts) recursiveReadOnly(handler string) bool {
	told := f.told.Load()
	return told != nil && told.recursive[handler]
}

// hugePageSizes are the kernel's, in the names of cgroups.
func hugePageSizes() []string {
	entries, err := os.ReadDir("/sys/kernel/mm/hugepages")
	if err != nil {
		return nil
	}
	var sizes []string
	for _, e := range entries {
		if size, ok := criconfig.HugePageSize(e.Name()); ok {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// kernelRelease is the kernel's, such as 6.12.41-v8+, or "".
func kernelRelease() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(data))
}

// bootID changes with every boot (random(4)); "" if it cannot be read.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(data))
}

// appArmor says whether the kernel has it on
// (Documentation/admin-guide/LSM/apparmor.rst of Linux).
func appArmor() bool {
	data, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && bytes.HasPrefix(data, []byte("Y"))
}

// get is the node as it is now. It fails while the runtime cannot tell its
// cgroup driver, and blocks while that call does.
func (f *nodeFacts) get(ctx context.Context) (*criconfig.Node, error) {
	told, err := f.ask(ctx)
	if err != nil {
		return nil, err
	}
	n := f.node(told.cgroupDriver)
	if file := f.cfg.Kubelet.ResolverConfig; file != nil && *file != "" {
		if n.Resolv, err = readResolvConf(*file); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// peek is the node without its name servers, and ok false while the runtime
// has not told its cgroup driver. It asks nobody.
func (f *nodeFacts) peek() (n *criconfig.Node, ok bool) {
	told := f.told.Load()
	if told == nil {
		return nil, false
	}
	return f.node(told.cgroupDriver), true
}

func (f *nodeFacts) node(driver string) *criconfig.Node {
	k := &f.cfg.Kubelet
	n := &criconfig.Node{
		HostIPs:              f.hostIPs(),
		ClusterDNS:           k.ClusterDNS,
		ClusterDomain:        k.ClusterDomain,
		CgroupDriver:         driver,
		CgroupRoot:           k.CgroupRoot,
		PodLogsDir:           f.cfg.Paths.PodLogs,
		MemoryCapacity:       f.memory,
		MemoryUnreserved:     f.unreserved,
		MemoryAccounting:     f.accounting.memory,
		SwapAccounting:       f.accounting.swap,
		LimitedSwap:          k.MemorySwap.SwapBehavior == swapLimited,
		SwapCapacity:         f.swap,
		IOWeights:            f.cfg.Tinylet.IOWeightByPriority && f.accounting.io,
		HugePageSizes:        f.hugePages,
		HugePageAccounting:   f.accounting.hugePages,
		Allocatable:          f.allocatable,
		EnforcedAllocatable:  f.enforced,
		CPUCFSQuota:          k.CPUCFSQuota == nil || *k.CPUCFSQuota,
		CPUCFSQuotaPeriod:    k.CPUCFSQuotaPeriod.Duration,
		SingleProcessOOMKill: k.SingleProcessOOMKill != nil && *k.SingleProcessOOMKill,
		PodPidsLimit:         *k.PodPidsLimit,
		SeccompDefault:       k.SeccompDefault != nil && *k.SeccompDefault,
		SeccompProfileRoot:   f.cfg.Paths.Root + "/seccomp",
	}
	if *f.cfg.Tinylet.MemoryQoS && f.accounting.memory {
		n.MemoryQoS = k.MemoryReservationPolicy == kubelet.TieredReservationMemoryReservationPolicy
		n.MemoryThrottling = *k.MemoryThrottlingFactor
	}
	return n
}

// readResolvConf reads the node's name servers. A board without an uplink may
// have no such file yet, or an empty one, and its pods run all the same; but
// a sandbox without any DNS setting would have containerd copy the file that
// is not there. So it gets the one option that changes nothing.
func readResolvConf(file string) (*runtimeapi.DNSConfig, error) {
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the node's name servers: %w; set resolvConf to the file that names them, or to \"\"", err)
	}
	dns := criconfig.ParseResolvConf(data)
	if len(dns.GetServers())+len(dns.GetSearches())+len(dns.GetOptions()) == 0 {
		return &runtimeapi.DNSConfig{Options: []string{"ndots:1"}}, nil
	}
	return dns, nil
}

// runtimeConnected has the runtime asked again: it may have been upgraded.
func (f *nodeFacts) runtimeConnected() { f.stale.Store(true) }

// ask asks the runtime what it is, once for each time it connects. While it does
// not answer, its former answer holds.
func (f *nodeFacts) ask(ctx context.Context) (*runtimeFacts, error) {
	told := f.told.Load()
	if told != nil && !f.stale.Load() {
		return told, nil
	}
	f.stale.Store(false) // before the questions: it may connect again during them
	now, err := f.askRuntime(ctx)
	if err != nil {
		f.stale.Store(true)
		if told != nil {
			return told, nil
		}
		return nil, err
	}
	f.told.Store(now)
	return now, nil
}

func (f *nodeFacts) askRuntime(ctx context.Context) (*runtimeFacts, error) {
	driver, err := f.cgroupDriver(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for its cgroup driver: %w", err)
	}
	status, err := f.runtime.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the runtime what it can do: %w", err)
	}
	told := &runtimeFacts{cgroupDriver: driver, recursive: make(map[string]bool)}
	for _, h := range status.GetRuntimeHandlers() {
		told.recursive[h.GetName()] = h.GetFeatures().GetRecursiveReadOnlyMounts()
	}
	told.noStrictGroups = !status.GetFeatures().GetSupplementalGroupsPolicy()
	return told, nil
}

// cgroupDriver returns the runtime's own driver (KEP-4033), or that of its
// verbose status where it does not implement RuntimeConfig, as containerd 1.7,
// or else the configured one.
func (f *nodeFacts) cgroupDriver(ctx context.Context) (string, error) {
	answer, err := f.runtime.RuntimeConfig(ctx)
	switch {
	case errors.Is(err, container.ErrUnsupported), err == nil && answer.GetLinux() == nil:
		info, err := f.runtime.Info(ctx)
		return cmp.Or(info.CgroupDriver, f.cfg.Kubelet.CgroupDriver), err
	case err != nil:
		return "", err
	case answer.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
		return criconfig.DriverSystemd, nil
	}
	return criconfig.DriverCgroupfs, nil
}

// addressesFresh is how long the node's addresses are taken as known.
const addressesFresh = 30 * time.Second

// forgetAddresses has the addresses read anew when they are asked for next.
func (f *nodeFacts) forgetAddresses() {
	f.mu.Lock()
	f.ipsAt = time.Time{}
	f.mu.Unlock()
}

// hostIPs are the node's addresses: the configured ones, or those from which
// it would speak to the world, IPv4 first.
func (f *nodeFacts) hostIPs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ips != nil && time.Since(f.ipsAt) < addressesFresh {
		return f.ips
	}
	ips := []string{}
	for _, ip := range f.cfg.NodeIPs {
		if !ip.IsUnspecified() {
			ips = append(ips, ip.String())
		}
	}
	if len(ips) == 0 {
		// Documentation addresses (RFC 5737, RFC 3849): choosing a route to
		// them sends nothing.
		for _, far := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
			if ip := sourceAddress(far); ip != "" {
				ips = append(ips, ip)
			}
		}
	}
	f.ips, f.ipsAt = ips, time.Now()
	return ips
}

// sourceAddress is the address from which the kernel would send to far, or "".
func sourceAddress(far string) string {
	conn, err := net.Dial("udp", far)
	if err != nil {
		return ""
	}
	defer conn.Close()
	if addr, ok := conn.LocalAddr().(*net.UDPAddr); ok && !addr.IP.IsLoopback() {
		return addr.IP.String()
	}
	return ""
}
