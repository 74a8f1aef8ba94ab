// Package nodeinfo provides the properties of the node that pod admission, the pods' CRI
// configs and the Node object need. Properties that do not change while the agent runs
// are read once. The runtime is called when its properties are needed, because it may not
// run when the agent starts. Addresses and resolv.conf are read again, because they change.
package nodeinfo

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

	"github.com/tinylet/tinylet/agent/config"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/cgroups"
)

// Info provides the properties of the node. Its methods are safe for concurrent use.
type Info struct {
	cfg     *config.Config
	runtime container.RuntimeInfo

	runtimeInfo atomic.Pointer[runtimeInfo] // nil until the runtime has answered
	stale       atomic.Bool                 // the runtime may have been upgraded since
	apiNode     atomic.Pointer[v1.Node]     // the Node object, nil until it was received

	// Set by New.
	memory, swap          int64 // bytes
	unreserved            int64 // bytes of memory
	allocatable, enforced v1.ResourceList
	hugePages             []string
	seLinux               bool
	accounting            accounting
	systemd               bool // systemd is the init system
	admission             *Admission

	mu         sync.Mutex // never held over a call that can block
	ips        []string
	checkedIPs []string // the addresses at the last call of AddressesChanged
	ipsAt      time.Time
}

// New reads the properties that do not change. tree is nil without cgroups. It does not
// call the runtime. It fails if a resource list of the configuration cannot be parsed, and
// if more is reserved than the capacity.
func New(cfg *config.Config, runtime container.RuntimeInfo, tree *cgroups.Tree) (*Info, error) {
	f := &Info{cfg: cfg, runtime: runtime, accounting: accountingOf(tree)}
	k := &cfg.Kubelet
	roots := machine.Roots{Storage: cfg.Paths.Root}
	var err error
	capacity := machine.Capacity(roots, k.MaxPods, k.PodsPerCore)
	reserved := machine.Reserved{Kube: k.KubeReserved, System: k.SystemReserved, EvictionHard: k.EvictionHard}
	if f.allocatable, err = machine.Allocatable(capacity, reserved); err != nil {
		return nil, fmt.Errorf("compute the allocatable resources: %w", err)
	}
	if f.enforced, err = machine.EnforcedAllocatable(capacity, reserved, roots); err != nil {
		return nil, fmt.Errorf("compute the allocatable resources: %w", err)
	}
	f.unreserved = f.enforced.Memory().Value()
	if !slices.Contains(k.EnforceNodeAllocatable, enforcePods) {
		if f.enforced, err = machine.EnforcedAllocatable(capacity, machine.Reserved{}, roots); err != nil {
			return nil, fmt.Errorf("compute the allocatable resources: %w", err)
		}
	}
	f.memory, f.swap = machine.Memory(roots), machine.Swap(roots)
	f.hugePages = hugePageSizes()
	f.seLinux = seLinux("")
	f.systemd = cgroups.SystemdRuns("")
	f.admission = &Admission{
		Name:                 cfg.NodeName,
		Labels:               machine.Labels(cfg.NodeName, cfg.NodeLabels),
		Unconfirmed:          cfg.Kubeconfig != "",
		Taints:               k.RegisterWithTaints,
		OS:                   goruntime.GOOS,
		Arch:                 goruntime.GOARCH,
		Allocatable:          f.allocatable,
		MaxPods:              int(capacity.Pods().Value()),
		AgentPorts:           cfg.ListenPorts(),
		Kernel:               machine.KernelVersion(),
		AllowedUnsafeSysctls: k.AllowedUnsafeSysctls,
		AppArmor:             appArmor(),
	}
	return f, nil
}

// runtimeInfo has the properties of the runtime.
type runtimeInfo struct {
	cgroupDriver string
	// recursive are the handlers, by name, that support recursive read-only mounts.
	recursive map[string]bool
	// noStrictGroups means that the runtime does not support supplementalGroupsPolicy Strict.
	noStrictGroups bool
}

// Admission returns the state that pod admission checks. Labels and taints are those of the
// Node object once SetNode was called, because users and controllers change them there. The
// result must not be changed.
func (f *Info) Admission() *Admission {
	runtime, node := f.runtimeInfo.Load(), f.apiNode.Load()
	if node == nil && (runtime == nil || !runtime.noStrictGroups) {
		return f.admission
	}
	n := *f.admission
	n.NoStrictSupplementalGroups = runtime != nil && runtime.noStrictGroups
	if node != nil {
		n.Labels, n.Taints, n.Unconfirmed = node.Labels, lastingTaints(node), false
	}
	return &n
}

// lastingTaints returns the taints without those that controllers set for the node's
// state. These change between two reads of the Node object, and the taint manager evicts
// pods for them.
func lastingTaints(n *v1.Node) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t v1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
}

// SetNode stores the Node object as the API server has it.
func (f *Info) SetNode(n *v1.Node) { f.apiNode.Store(n) }

// SystemdCgroups reports whether the runtime's cgroup driver is systemd. It returns false
// until the runtime has answered.
func (f *Info) SystemdCgroups() bool {
	runtime := f.runtimeInfo.Load()
	return runtime != nil && runtime.cgroupDriver == criconfig.DriverSystemd
}

// SystemdMissing reports whether the runtime's cgroup driver is systemd although systemd
// is not the init system: then no container can start.
func (f *Info) SystemdMissing() bool { return f.SystemdCgroups() && !f.systemd }

// RecursiveReadOnly reports whether a runtime handler supports recursive read-only mounts.
func (f *Info) RecursiveReadOnly(handler string) bool {
	runtime := f.runtimeInfo.Load()
	return runtime != nil && runtime.recursive[handler]
}

// MemoryCapacity returns the node's memory in bytes.
func (f *Info) MemoryCapacity() int64 { return f.memory }

// Allocatable returns what all pods may request together. It must not be changed.
func (f *Info) Allocatable() v1.ResourceList { return f.allocatable }

// LimitedSwap reports whether pods may swap and the kernel can limit that (KEP-2400).
func (f *Info) LimitedSwap() bool {
	return f.cfg.Kubelet.MemorySwap.SwapBehavior == swapLimited && f.accounting.swap
}

// hugePageSizes returns the sizes that the kernel supports, in the names of cgroups.
func hugePageSizes() []string {
	var sizes []string
	entries, _ := os.ReadDir("/sys/kernel/mm/hugepages") // a kernel without huge pages has none
	for _, e := range entries {
		if size, ok := criconfig.HugePageSize(e.Name()); ok {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// appArmor reports whether the kernel has AppArmor enabled
// (Documentation/admin-guide/LSM/apparmor.rst of Linux).
func appArmor() bool {
	enabled, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled") // missing without AppArmor
	return bytes.HasPrefix(enabled, []byte("Y"))
}

// seLinux reports whether the kernel has SELinux enabled, with a policy (getEnabled in
// github.com/opencontainers/selinux). root is prepended to the paths.
func seLinux(root string) bool {
	label, err := os.ReadFile(root + "/proc/self/attr/current")
	if err != nil || string(bytes.TrimRight(label, "\x00\n")) == "kernel" {
		return false
	}
	_, err = os.Stat(root + "/sys/fs/selinux/enforce")
	return err == nil
}

// Get returns the node with its name servers. It fails if the runtime has never reported
// its properties, or if resolvConf cannot be read. It blocks while the runtime is called.
func (f *Info) Get(ctx context.Context) (*criconfig.Node, error) {
	runtime, err := f.ask(ctx)
	if err != nil {
		return nil, err
	}
	n := f.WithDriver(runtime.cgroupDriver)
	if file := f.cfg.Kubelet.ResolverConfig; file != nil && *file != "" {
		if n.Resolv, err = readResolvConf(*file); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Peek returns the node without its name servers. It does not block. ok is false until the
// runtime has reported its properties.
func (f *Info) Peek() (n *criconfig.Node, ok bool) {
	runtime := f.runtimeInfo.Load()
	if runtime == nil {
		return nil, false
	}
	return f.WithDriver(runtime.cgroupDriver), true
}

// WithDriver returns the node without its name servers, for a cgroup driver.
func (f *Info) WithDriver(driver string) *criconfig.Node {
	k := &f.cfg.Kubelet
	n := &criconfig.Node{
		HostIPs:              f.HostIPs(),
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
		SELinux:              f.seLinux,
	}
	if *f.cfg.Tinylet.MemoryQoS && f.accounting.memory {
		n.MemoryQoS = k.MemoryReservationPolicy == kubelet.TieredReservationMemoryReservationPolicy
		n.MemoryThrottling = *k.MemoryThrottlingFactor
	}
	return n
}

// readResolvConf reads the node's name servers. A missing or empty file is no error: a node
// without an uplink may have no name servers yet. For a sandbox without any DNS setting,
// containerd copies the host's file and fails if it is missing. Therefore the result then
// has one option with its default value.
func readResolvConf(file string) (*runtimeapi.DNSConfig, error) {
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the node's name servers: %w; set resolvConf to the file that lists them, or to \"\"", err)
	}
	dns := criconfig.ParseResolvConf(data)
	if len(dns.GetServers())+len(dns.GetSearches())+len(dns.GetOptions()) == 0 {
		return &runtimeapi.DNSConfig{Options: []string{"ndots:1"}}, nil
	}
	return dns, nil
}

// RuntimeConnected makes the next Refresh or Get call the runtime again: it may have been
// upgraded.
func (f *Info) RuntimeConnected() { f.stale.Store(true) }

// Refresh returns the node without its name servers. It calls the runtime unless the runtime
// has answered since it last connected, and blocks meanwhile. After an error of the runtime,
// its former answer remains valid; without one, Refresh fails.
func (f *Info) Refresh(ctx context.Context) (*criconfig.Node, error) {
	runtime, err := f.ask(ctx)
	if err != nil {
		return nil, err
	}
	return f.WithDriver(runtime.cgroupDriver), nil
}

func (f *Info) ask(ctx context.Context) (*runtimeInfo, error) {
	known := f.runtimeInfo.Load()
	if known != nil && !f.stale.Load() {
		return known, nil
	}
	f.stale.Store(false) // before the calls: the runtime may connect again during them
	current, err := f.askRuntime(ctx)
	if err != nil {
		f.stale.Store(true)
		if known != nil {
			return known, nil
		}
		return nil, err
	}
	f.runtimeInfo.Store(current)
	return current, nil
}

func (f *Info) askRuntime(ctx context.Context) (*runtimeInfo, error) {
	driver, err := f.cgroupDriver(ctx)
	if err != nil {
		return nil, fmt.Errorf("get the cgroup driver of the runtime: %w", err)
	}
	status, err := f.runtime.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("get the features of the runtime: %w", err)
	}
	info := &runtimeInfo{cgroupDriver: driver, recursive: make(map[string]bool)}
	for _, h := range status.GetRuntimeHandlers() {
		info.recursive[h.GetName()] = h.GetFeatures().GetRecursiveReadOnlyMounts()
	}
	info.noStrictGroups = !status.GetFeatures().GetSupplementalGroupsPolicy()
	return info, nil
}

// cgroupDriver returns the driver that the runtime reports with RuntimeConfig (KEP-4033). A
// runtime such as containerd 1.7 does not implement that call: then it returns the driver in
// the runtime's verbose status, or else the configured one.
func (f *Info) cgroupDriver(ctx context.Context) (string, error) {
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

// addressesFresh is how long the node's addresses are cached.
const addressesFresh = 30 * time.Second

// AddressesChanged reports whether HostIPs returns other addresses than at the last call of
// AddressesChanged. The first call returns true if the node has an address.
func (f *Info) AddressesChanged() bool {
	ips := f.HostIPs()
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := !slices.Equal(f.checkedIPs, ips)
	f.checkedIPs = ips
	return changed
}

// ForgetAddresses makes the next HostIPs read the addresses.
func (f *Info) ForgetAddresses() {
	f.mu.Lock()
	f.ipsAt = time.Time{}
	f.mu.Unlock()
}

// HostIPs returns the node's addresses: the configured ones, or the source addresses of its
// default routes, IPv4 first. The slice must not be changed.
func (f *Info) HostIPs() []string {
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
		// Documentation addresses (RFC 5737, RFC 3849). A route lookup sends
		// nothing.
		for _, far := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
			if ip := sourceAddress(far); ip != "" {
				ips = append(ips, ip)
			}
		}
	}
	f.ips, f.ipsAt = ips, time.Now()
	return ips
}

// sourceAddress returns the address from which the kernel would send to far, or "".
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
