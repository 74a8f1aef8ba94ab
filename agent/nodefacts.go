package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/criconfig"
)

// nodeFacts is what the pods' configs need to know of the node. Most of it is
// read when it is needed: the runtime may not be up when the agent starts,
// and addresses and resolv.conf change under it.
type nodeFacts struct {
	cfg     *config.Config
	runtime container.Node

	driver atomic.Pointer[string] // nil until the runtime told it

	mu    sync.Mutex // never held over a call that can block
	ips   []string
	ipsAt time.Time
}

func newNodeFacts(cfg *config.Config, runtime container.Node) *nodeFacts {
	return &nodeFacts{cfg: cfg, runtime: runtime}
}

// get is the node as it is now. It fails while the runtime cannot tell its
// cgroup driver, and blocks while that call does.
func (f *nodeFacts) get(ctx context.Context) (*criconfig.Node, error) {
	driver, err := f.cgroupDriver(ctx)
	if err != nil {
		return nil, err
	}
	n := f.node(driver)
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
	driver := f.driver.Load()
	if driver == nil {
		return nil, false
	}
	return f.node(*driver), true
}

func (f *nodeFacts) node(driver string) *criconfig.Node {
	k := &f.cfg.Kubelet
	return &criconfig.Node{
		HostIPs:              f.hostIPs(),
		ClusterDNS:           k.ClusterDNS,
		ClusterDomain:        k.ClusterDomain,
		CgroupDriver:         driver,
		CgroupRoot:           k.CgroupRoot,
		PodLogsDir:           f.cfg.Paths.PodLogs,
		MemoryCapacity:       memoryCapacity(),
		CPUCFSQuota:          k.CPUCFSQuota == nil || *k.CPUCFSQuota,
		CPUCFSQuotaPeriod:    k.CPUCFSQuotaPeriod.Duration,
		SingleProcessOOMKill: k.SingleProcessOOMKill != nil && *k.SingleProcessOOMKill,
		PodPidsLimit:         *k.PodPidsLimit,
		SeccompDefault:       k.SeccompDefault != nil && *k.SeccompDefault,
	}
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

// cgroupDriver is the runtime's own, or the configured one where the runtime
// does not tell (KEP-4033).
func (f *nodeFacts) cgroupDriver(ctx context.Context) (string, error) {
	if known := f.driver.Load(); known != nil {
		return *known, nil
	}
	driver := criconfig.DriverCgroupfs
	answer, err := f.runtime.RuntimeConfig(ctx)
	switch {
	case errors.Is(err, container.ErrUnsupported), err == nil && answer.GetLinux() == nil:
		driver = f.cfg.Kubelet.CgroupDriver
	case err != nil:
		return "", fmt.Errorf("ask the runtime for its cgroup driver: %w", err)
	case answer.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
		driver = criconfig.DriverSystemd
	}
	f.driver.Store(&driver)
	return driver, nil
}

// addressesFresh is how long the node's addresses are taken as known.
const addressesFresh = 30 * time.Second

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

// memoryCapacity is the machine's memory in bytes, or 0 if /proc does not
// tell.
func memoryCapacity() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		rest, ok := bytes.CutPrefix(line, []byte("MemTotal:"))
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
		if err == nil {
			return kb << 10
		}
	}
	return 0
}
