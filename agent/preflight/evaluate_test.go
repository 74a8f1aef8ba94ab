package preflight

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/board"
)

// healthy returns the facts of a node without a problem.
func healthy() Facts {
	built := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	return Facts{
		Input: Input{NodeName: "board", Now: built.Add(time.Hour), Built: built, Config: Config{File: "/etc/tinylet/config.yaml"}},
		Arch:  "arm64", Init: "init",
		Kernel: Kernel{
			Release: "6.12.1-v8", CommandLine: []string{"console=tty1"},
			Modules:  allModules(Yes),
			Pressure: Yes, Seccomp: Yes, UserNamespaces: Yes,
		},
		Cgroup:    Cgroup{Kind: CgroupUnified, Controllers: []string{"cpuset", "cpu", "io", "memory", "pids"}},
		Memory:    Memory{Total: 512 * mebibyte, Available: 300 * mebibyte},
		IPForward: Yes, IPv6Forward: Yes, SharedMount: Yes,
		Directories: []Directory{{ID: "pods", Path: "/p", ExistingPath: "/", Writable: true, Needs: 50 * mebibyte, Total: 1000 * mebibyte, Free: 500 * mebibyte, Inodes: 1000, InodesFree: 500}},
		Runtime: Runtime{
			Endpoint: "unix:///r", Name: "containerd", Version: "2.4.2", CgroupDriver: "cgroupfs",
			Ready: &Condition{True: true}, NetworkReady: &Condition{True: true},
		},
		Network: Network{
			Mode: "bridge", Bridge: "tinylet0", Pods: []netip.Prefix{pods4, pods6}, ConfigFolder: "/etc/cni/net.d", Ours: true,
			Plugin: Plugin{Path: "/opt/cni/bin/tinylet-cni", State: PluginInstalled, Target: "/usr/bin/tinylet", Writable: true},
			Host:   HostNetwork{Known: true, RulesKnown: true, BridgeFamily: Yes, Used: []UsedNetwork{address("192.0.2.0/24", "eth0"), address("fd00:1::/64", "eth0"), route("10.99.0.0/16", "tun0")}},
		},
	}
}

var (
	pods4 = netip.MustParsePrefix("10.88.0.0/24")
	pods6 = netip.MustParsePrefix("fd00:88::/64")
)

func allModules(known Tristate) map[string]Tristate {
	all := map[string]Tristate{}
	for _, f := range features {
		all[f.module] = known
	}
	return all
}

func address(network, name string) UsedNetwork {
	return UsedNetwork{Network: netip.MustParsePrefix(network), Interface: name, Address: true}
}

func route(network, name string) UsedNetwork {
	return UsedNetwork{Network: netip.MustParsePrefix(network), Interface: name}
}

func bridge(network, name string) UsedNetwork {
	u := address(network, name)
	u.Bridge = true
	return u
}

// uses adds networks of the host.
func uses(more ...UsedNetwork) func(*Facts) {
	return func(f *Facts) { f.Network.Host.Used = append(f.Network.Host.Used, more...) }
}

func network(change func(*Network)) func(*Facts) {
	return func(f *Facts) { change(&f.Network) }
}

// mode sets the network mode, with a kernel that has nothing for pods.
func mode(name string, others ...string) func(*Network) {
	return func(n *Network) { n.Mode, n.Others, n.Ours = name, others, name != "cni" }
}

func loopbacks(names ...string) func(*Facts) {
	return network(func(n *Network) { n.Loopbacks = names })
}

var pi = board.Model{Name: "Raspberry Pi 3 Model B", Vendor: "raspberrypi", RaspberryPi: true}

func withoutController(f *Facts, name string) {
	var left []string
	for _, c := range f.Cgroup.Controllers {
		if c != name {
			left = append(left, c)
		}
	}
	f.Cgroup.Controllers = left
}

func commandLine(f *Facts, line string) { f.Kernel.CommandLine = strings.Fields(line) }

func TestEvaluate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Facts)
		id     string
		level  Level
		what   string // parts that must be in the texts
		remedy string
	}{
		{name: "not root", change: func(f *Facts) { f.UID = 1000 }, id: "caller", level: Warn, what: "1000", remedy: "root"},

		{name: "kernel too old", change: func(f *Facts) { f.Kernel.Release = "4.19.0-rpi" }, id: "kernel", level: Fail, what: "4.19", remedy: "5.8"},
		{name: "kernel just too old", change: func(f *Facts) { f.Kernel.Release = "5.1.21" }, id: "kernel", level: Fail, what: "5.1.21", remedy: "5.8"},
		{name: "kernel old", change: func(f *Facts) { f.Kernel.Release = "5.4.42-v7+" }, id: "kernel", level: Warn, what: "5.4.42-v7+", remedy: "5.8"},
		{name: "kernel new enough", change: func(f *Facts) { f.Kernel.Release = "5.8" }, id: "kernel", level: OK, what: "5.8"},
		{name: "kernel of two digits", change: func(f *Facts) { f.Kernel.Release = "5.10.0" }, id: "kernel", level: OK, what: "5.10.0"},
		{name: "kernel unreadable", change: func(f *Facts) { f.Kernel.Release = "six" }, id: "kernel", level: Warn, what: `"six"`, remedy: "uname"},
		{name: "kernel on a known board", change: func(f *Facts) { f.Board = pi }, id: "kernel", level: OK, what: "Raspberry Pi 3 Model B"},

		{
			name: "no memory, by the command line", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) { withoutController(f, "memory"); commandLine(f, "a cgroup_disable=memory b") },
			what:   "cgroup_disable=memory", remedy: "remove cgroup_disable=memory from",
		},
		{
			name: "no memory, among others on the command line", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) { withoutController(f, "memory"); commandLine(f, "cgroup_disable=pids,memory") },
			what:   "cgroup_disable=memory", remedy: "remove cgroup_disable=memory from",
		},
		{
			name: "no memory on a Raspberry Pi, by its firmware", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) {
				withoutController(f, "memory")
				commandLine(f, "coherent_pool=1M cgroup_disable=memory console=tty1")
				f.Board, f.BootCommandLine = pi, "/boot/firmware/cmdline.txt"
			},
			what: "Raspberry Pi firmware", remedy: "append cgroup_enable=memory cgroup_memory=1 to the only line of /boot/firmware/cmdline.txt",
		},
		{
			name: "no memory on a Raspberry Pi, by its kernel", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) {
				withoutController(f, "memory")
				f.Board, f.BootCommandLine, f.Cgroup.Disabled = pi, "/boot/cmdline.txt", []string{"memory"}
			},
			what: "Raspberry Pi kernels", remedy: "cgroup_enable=memory cgroup_memory=1 to the only line of /boot/cmdline.txt",
		},
		{
			name: "no memory on a Raspberry Pi, boot partition not mounted", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) { withoutController(f, "memory"); f.Board = pi },
			what:   "Raspberry Pi", remedy: "/boot/firmware/cmdline.txt or /boot/cmdline.txt",
		},
		{
			name: "no memory though asked for", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) {
				withoutController(f, "memory")
				commandLine(f, "cgroup_disable=memory cgroup_memory=1 cgroup_enable=memory")
				f.Board = pi
			},
			what: "ignores", remedy: "bootargs",
		},
		{
			name: "no memory in the kernel", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) {
				withoutController(f, "memory")
				f.Board, f.Kernel.Config = pi, map[string]string{"CONFIG_MEMCG": "n"}
			},
			what: "CONFIG_MEMCG", remedy: "build the kernel with CONFIG_MEMCG=y",
		},
		{
			name: "memory is off", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) { withoutController(f, "memory"); f.Cgroup.Disabled = []string{"memory"} },
			what:   "it is disabled", remedy: "cgroup_enable=memory",
		},
		{
			name: "memory in version 1", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) { withoutController(f, "memory"); f.Cgroup.InV1 = []string{"memory"} },
			what:   "cgroup v1", remedy: "cgroup_no_v1=all",
		},
		{
			name: "no memory, nobody knows why", id: "cgroup-memory", level: Fail,
			change: func(f *Facts) { withoutController(f, "memory") },
			what:   "cause is unknown", remedy: "CONFIG_MEMCG",
		},
		{name: "no cpu", change: func(f *Facts) { withoutController(f, "cpu") }, id: "cgroup-cpu", level: Fail, what: "cpu", remedy: "CONFIG_CGROUP_SCHED"},
		{name: "no pids", change: func(f *Facts) { withoutController(f, "pids"); commandLine(f, "cgroup_disable=pids") }, id: "cgroup-pids", level: Fail, what: "pids", remedy: "from cgroup_disable"},
		{name: "no io", change: func(f *Facts) { withoutController(f, "io"); commandLine(f, "cgroup_disable=blkio") }, id: "cgroup-io", level: Warn, what: "io", remedy: "remove blkio from"},
		{name: "cpuset in version 1", change: func(f *Facts) { withoutController(f, "cpuset"); f.Cgroup.InV1 = []string{"cpuset"} }, id: "cgroup-cpuset", level: Warn, what: "cpuset", remedy: "cgroup v1"},
		{name: "no tree", change: func(f *Facts) { f.Cgroup = Cgroup{} }, id: "cgroup-v2", level: Fail, what: "no cgroup file system", remedy: "mount -t cgroup2"},
		{name: "no cgroups", change: func(f *Facts) { f.Cgroup = Cgroup{}; f.Kernel.Config = map[string]string{"CONFIG_CGROUPS": "n"} }, id: "cgroup-v2", level: Fail, what: "no cgroups", remedy: "CONFIG_CGROUPS"},
		{name: "hybrid", change: func(f *Facts) { f.Cgroup = Cgroup{Kind: CgroupHybrid, InV1: []string{"cpu"}}; f.Init = "systemd" }, id: "cgroup-v2", level: Fail, what: "controllers cpu", remedy: "systemd.unified_cgroup_hierarchy=1"},
		{name: "version 1 without systemd", change: func(f *Facts) { f.Cgroup = Cgroup{Kind: CgroupV1} }, id: "cgroup-v2", level: Fail, what: "cgroup v1", remedy: "mount -t cgroup2"},

		{name: "no overlayfs", change: module("overlay", No), id: "overlayfs", level: Fail, what: "overlay", remedy: "CONFIG_OVERLAY_FS"},
		{name: "no veth", change: module("veth", No), id: "veth", level: Fail, what: "veth", remedy: "modprobe veth"},
		{name: "no bridge", change: module("bridge", No), id: "bridge", level: Fail, what: "bridge", remedy: "modprobe bridge"},
		{name: "no nf_tables", change: module("nf_tables", No), id: "nf-tables", level: Fail, what: "pods without hostNetwork cannot start", remedy: "CONFIG_NF_TABLES=y"},
		{name: "no nf_tables for another's network", change: all(module("nf_tables", No), network(mode("cni", "10-x.conflist"))), id: "nf-tables", level: Warn, what: "nf_tables", remedy: "modprobe nf_tables"},
		{name: "no family bridge", change: network(func(n *Network) { n.Host.BridgeFamily = No }), id: "pod-spoofing", level: Warn, what: "addresses of other pods", remedy: "CONFIG_NF_TABLES_BRIDGE=y"},
		{name: "no family bridge, by the configuration", id: "pod-spoofing", level: Warn, what: "bridge family", remedy: "CONFIG_NF_TABLES_BRIDGE=y", change: func(f *Facts) {
			f.Network.Host.BridgeFamily, f.Kernel.Config = Unknown, map[string]string{"CONFIG_NF_TABLES_BRIDGE": "n"}
		}},
		{name: "the family bridge, by the configuration", id: "pod-spoofing", level: OK, what: "their own addresses", change: func(f *Facts) {
			f.Network.Host.BridgeFamily, f.Kernel.Config = Unknown, map[string]string{"CONFIG_NF_TABLES_BRIDGE": "y"}
		}},
		{name: "no family inet", change: func(f *Facts) { f.Kernel.Config = map[string]string{"CONFIG_NF_TABLES_INET": "n"} }, id: "nf-tables", level: Fail, what: "inet", remedy: "CONFIG_NF_TABLES_INET"},
		{name: "no conntrack", change: module("nf_conntrack", No), id: "masquerade", level: Fail, what: "no nf_conntrack:", remedy: "CONFIG_NF_CONNTRACK=y"},
		{name: "no translation", change: module("nft_chain_nat", No), id: "masquerade", level: Fail, what: "nft_chain_nat", remedy: "modprobe -a nft_chain_nat), or build the kernel with CONFIG_NFT_NAT=y,"},
		{name: "no masquerade", change: module("nft_masq", No), id: "masquerade", level: Fail, what: "nft_masq", remedy: "CONFIG_NFT_MASQ=y"},
		{name: "no lookup of addresses", change: module("nft_fib_inet", No), id: "masquerade", level: Fail, what: "nft_fib_inet", remedy: "CONFIG_NFT_FIB_INET=y"},
		{name: "no state of connections", change: module("nft_ct", No), id: "masquerade", level: Fail, what: "nft_ct", remedy: "CONFIG_NFT_CT=y"},
		{name: "two modules of one option", change: all(module("nft_nat", No), module("nft_chain_nat", No)), id: "masquerade", level: Fail, what: "nft_chain_nat, nft_nat", remedy: "with CONFIG_NFT_NAT=y, or"},
		{name: "masquerade was left out of the kernel", change: all(module("nft_masq", No), func(f *Facts) { f.Kernel.Config = map[string]string{"CONFIG_NFT_MASQ": "n"} }), id: "masquerade", level: Fail, what: "nft_masq", remedy: "build the kernel with CONFIG_NFT_MASQ=y"},
		{name: "masquerade cannot be told", change: module("nft_masq", Unknown), id: "masquerade", level: Warn, what: "cannot determine", remedy: "modprobe -a nft_masq"},
		{name: "services", change: services, id: "services", level: OK, what: "nft_numgen, nft_reject_inet"},
		{name: "no choice among endpoints", change: all(services, module("nft_numgen", No)), id: "services", level: Fail, what: "nft_numgen", remedy: "CONFIG_NFT_NUMGEN=y"},
		{name: "no refusal", change: all(services, module("nft_reject_inet", No)), id: "services", level: Fail, what: "nft_reject_inet", remedy: "CONFIG_NFT_REJECT=y"},
		{name: "no limits of bandwidth", change: module("sch_tbf", No), id: "bandwidth", level: Warn, what: "sch_tbf", remedy: "CONFIG_NET_SCH_TBF"},
		{name: "veth cannot be told", change: module("veth", Unknown), id: "veth", level: Warn, what: "cannot determine", remedy: "modprobe veth"},
		{name: "no seccomp", change: func(f *Facts) { f.Kernel.Seccomp = No }, id: "seccomp", level: Warn, what: "no seccomp", remedy: "CONFIG_SECCOMP_FILTER"},
		{name: "no user namespaces", change: func(f *Facts) { f.Kernel.UserNamespaces = No }, id: "user-namespaces", level: Warn, what: "hostUsers", remedy: "CONFIG_USER_NS"},
		{name: "user namespaces are off", change: func(f *Facts) {
			f.Kernel.UserNamespaces = No
			f.Kernel.Config = map[string]string{"CONFIG_USER_NS": "y"}
		}, id: "user-namespaces", level: Warn, what: "hostUsers", remedy: "max_user_namespaces"},
		{name: "no room for pods", change: func(f *Facts) { f.Eviction = Eviction{Known: true, Hard: 512 * mebibyte} }, id: "eviction", level: Warn, what: "allocatable of 512 MiB", remedy: "evictionHard"},
		{name: "no PSI", change: func(f *Facts) { f.Kernel.Pressure = No }, id: "pressure", level: Warn, what: "PSI", remedy: "psi=1"},
		{name: "PSI turned off", change: func(f *Facts) { f.Kernel.Pressure = No; commandLine(f, "psi=0") }, id: "pressure", level: Warn, what: "PSI", remedy: "remove psi=0 from"},
		{name: "PSI not built", change: func(f *Facts) { f.Kernel.Pressure = No; f.Kernel.Config = map[string]string{"CONFIG_PSI": "n"} }, id: "pressure", level: Warn, what: "PSI", remedy: "CONFIG_PSI"},
		{name: "PSI cannot be told", change: func(f *Facts) { f.Kernel.Pressure = Unknown }, id: "pressure", level: Warn, what: "cannot determine", remedy: "/proc"},

		{name: "no forwarding yet", change: func(f *Facts) { f.IPForward = No }, id: "ip-forward", level: OK, what: "tinylet sets net.ipv4.ip_forward"},
		{name: "no forwarding, with routes", change: all(forward(No), network(mode("routed"))), id: "ip-forward", level: OK, what: "tinylet sets net.ipv4.ip_forward"},
		{name: "no forwarding, and no need", change: all(forward(No), network(mode("host"))), id: "ip-forward", level: OK, what: "not needed"},
		{name: "no forwarding for another's network", change: all(forward(No), network(mode("cni", "10-x.conflist"))), id: "ip-forward", level: Warn, what: "ip_forward", remedy: "sysctl"},
		{name: "IPv6 is forwarded", change: func(*Facts) {}, id: "ip6-forward", level: OK, what: "IPv6 forwarding is on"},
		{name: "no forwarding of IPv6 yet", change: forward6(No), id: "ip6-forward", level: OK, what: "tinylet sets net.ipv6.conf.all.forwarding"},
		{name: "no IPv6", change: forward6(Unknown), id: "ip6-forward", level: Fail, what: "the kernel has no IPv6 (net.ipv6.conf.all.forwarding), and the pod network is 10.88.0.0/24 and fd00:88::/64", remedy: "ipv6.disable=1"},
		{name: "no IPv6, and nothing else", change: all(forward6(Unknown), forward(Unknown)), id: "ip6-forward", level: Warn, what: "cannot determine", remedy: "sysctl"},
		{name: "no forwarding of IPv6 for another's network", change: all(forward6(No), network(mode("cni", "10-x.conflist"))), id: "ip6-forward", level: Warn, what: "by IPv6", remedy: "accept_ra=2"},
		{name: "no IPv6 for another's network", change: all(forward6(Unknown), network(mode("cni", "10-x.conflist"))), id: "ip6-forward", level: Warn, what: "cannot determine", remedy: "sysctl"},
		{name: "forwarding cannot be told", change: all(forward(Unknown), network(mode("cni", "10-x.conflist"))), id: "ip-forward", level: Warn, what: "cannot determine", remedy: "sysctl"},
		{name: "private root", change: func(f *Facts) { f.SharedMount = No }, id: "mount-propagation", level: Warn, what: "private", remedy: "--make-rshared"},
		{name: "swap", change: func(f *Facts) { f.Memory.Swap = 100 * mebibyte }, id: "swap", level: OK, what: "100 MiB"},
		{name: "swap that is not wanted", change: func(f *Facts) { f.Memory.Swap, f.FailSwapOn = 100*mebibyte, true }, id: "swap", level: Warn, what: "failSwapOn", remedy: "swapoff"},

		{name: "little memory", change: func(f *Facts) { f.Memory.Total = 120 * mebibyte }, id: "memory", level: Warn, what: "120 MiB", remedy: "256 MB"},
		{name: "little memory on a Raspberry Pi", change: func(f *Facts) { f.Memory.Total = 180 * mebibyte; f.Board = pi }, id: "memory", level: Warn, what: "180 MiB", remedy: "gpu_mem=16"},
		{name: "memory in use", change: func(f *Facts) { f.Memory.Available = mebibyte }, id: "memory", level: Warn, what: "only 1 MiB", remedy: "limits"},
		{name: "memory unknown", change: func(f *Facts) { f.Memory = Memory{} }, id: "memory", level: Warn, what: "cannot read", remedy: "/proc"},

		{name: "read-only", change: directory(func(d *Directory) { d.Writable = false }), id: "folder-pods", level: Fail, what: "/p is not writable", remedy: "read-write"},
		{name: "too little space", change: directory(func(d *Directory) { d.Free = 49 * mebibyte }), id: "folder-pods", level: Fail, what: "49 MiB of 1000 MiB", remedy: "room"},
		{name: "large and full", change: directory(func(d *Directory) { d.Total, d.Free = 100_000*mebibyte, 900*mebibyte }), id: "folder-pods", level: Fail, what: "1 %", remedy: "room"},
		{name: "nearly full", change: directory(func(d *Directory) { d.Free = 99 * mebibyte }), id: "folder-pods", level: Warn, what: "10 %", remedy: "room"},
		{name: "no inodes", change: directory(func(d *Directory) { d.InodesFree = 9 }), id: "folder-pods", level: Fail, what: "9 of 1000", remedy: "room"},
		{name: "few inodes", change: directory(func(d *Directory) { d.InodesFree = 99 }), id: "folder-pods", level: Warn, what: "99 of 1000", remedy: "room"},
		{name: "file system without inodes", change: directory(func(d *Directory) { d.Inodes, d.InodesFree = 0, 0 }), id: "folder-pods", level: OK, what: "500 MiB"},
		{name: "in memory", change: directory(func(d *Directory) { d.InMemory, d.LostWithMemory = true, "the pods" }), id: "folder-pods", level: Warn, what: "a reboot loses the pods", remedy: "mount a directory of a disk at /p"},
		{name: "in memory, as it should be", change: directory(func(d *Directory) { d.InMemory = true }), id: "folder-pods", level: OK, what: "500 MiB"},
		{name: "size unknown", change: directory(func(d *Directory) { d.Total, d.Free = 0, 0 }), id: "folder-pods", level: OK, what: "writable"},
		{name: "small and empty", change: directory(func(d *Directory) { d.Needs, d.Total, d.Free = 10*mebibyte, 32*mebibyte, 30*mebibyte }), id: "folder-pods", level: OK, what: "30 MiB of 32 MiB"},

		{name: "no runtime", change: runtimeFails(NoSocket), id: "runtime", level: Fail, what: "no container runtime socket", remedy: "start containerd"},
		{name: "runtime not for us", change: runtimeFails(NotAllowed), id: "runtime", level: Fail, what: "root", remedy: "root"},
		{name: "runtime is gone", change: runtimeFails(StaleSocket), id: "runtime", level: Fail, what: "is stale", remedy: "start containerd"},
		{name: "runtime hangs", change: runtimeFails(NoResponse), id: "runtime", level: Fail, what: "5 s", remedy: "log"},
		{name: "runtime with a bad address", change: runtimeFails(BadAddress), id: "runtime", level: Fail, what: "cannot connect to the container runtime at unix:///r: the error", remedy: "set containerRuntimeEndpoint to its socket"},
		{name: "runtime without CRI", change: runtimeFails(Broken), id: "runtime", level: Fail, what: "the error", remedy: "disabled_plugins"},
		{name: "old containerd", change: func(f *Facts) { f.Runtime.Version = "1.6.36" }, id: "runtime", level: Fail, what: "1.6.36", remedy: "1.7"},
		{name: "containerd of Debian 13", change: func(f *Facts) { f.Runtime.Version = "1.7.24~ds1-6+b4" }, id: "runtime", level: OK, what: "1.7.24"},
		{name: "containerd with a v", change: func(f *Facts) { f.Runtime.Version = "v2.4.2" }, id: "runtime", level: OK, what: "v2.4.2"},
		{name: "containerd without a version", change: func(f *Facts) { f.Runtime.Version = "" }, id: "runtime", level: Warn, what: "has no number", remedy: "1.7"},
		{name: "another runtime", change: func(f *Facts) { f.Runtime.Name, f.Runtime.Version = "cri-o", "1.0" }, id: "runtime", level: OK, what: "cri-o 1.0"},
		{name: "runtime not ready", change: func(f *Facts) { f.Runtime.Ready = &Condition{Reason: "R", Message: "m"} }, id: "runtime-ready", level: Fail, what: "(R: m)", remedy: "log"},
		{name: "runtime keeps quiet", change: func(f *Facts) { f.Runtime.Ready = nil }, id: "runtime-ready", level: Warn, what: "does not report", remedy: "log"},
		{name: "network not ready", change: notReady, id: "network-ready", level: Warn, what: "(NetworkPluginNotReady)", remedy: "start tinylet, which writes /etc/cni/net.d/10-tinylet.conflist"},
		{name: "network of the host not ready", change: all(notReady, network(mode("host"))), id: "network-ready", level: Warn, what: "(NetworkPluginNotReady)", remedy: "start tinylet"},
		{name: "another's network not ready", change: all(notReady, network(mode("cni"))), id: "network-ready", level: Warn, what: "(NetworkPluginNotReady)", remedy: "its plugins in /opt/cni/bin or /usr/lib/cni"},

		{name: "our network", change: network(func(*Network) {}), id: "pod-network", level: OK, what: "(bridge), 10.88.0.0/24 and fd00:88::/64"},
		{name: "our network, of a cluster", change: network(func(n *Network) { n.Pods = nil }), id: "pod-network", level: OK, what: "the API server"},
		{name: "network with routes", change: network(mode("routed")), id: "pod-network", level: OK, what: "(routed)"},
		{name: "the host's network", change: network(mode("host")), id: "pod-network", level: OK, what: "network.mode is host"},
		{name: "another's network", change: network(mode("cni", "10-flannel.conflist")), id: "pod-network", level: OK, what: "/etc/cni/net.d/10-flannel.conflist"},
		{name: "another's network that is not there", change: network(mode("cni")), id: "pod-network", level: Warn, what: "no network configuration", remedy: "network.mode: bridge"},
		{name: "another configuration first", change: network(mode("bridge", "05-x.conflist", "20-y.conf")), id: "pod-network", level: Warn, what: "uses /etc/cni/net.d/05-x.conflist", remedy: "remove /etc/cni/net.d/05-x.conflist, or set network.mode: cni"},
		{name: "another configuration before the host's", change: network(mode("host", "05-x.conflist")), id: "pod-network", level: Warn, what: "network.mode is host", remedy: "remove"},
		{name: "another configuration behind", change: network(mode("bridge", "20-y.conf")), id: "pod-network", level: OK, what: "(bridge)"},
		{name: "a loopback first", change: all(network(mode("bridge", "00-loopback.conf")), loopbacks("00-loopback.conf")), id: "pod-network", level: Warn, what: "pods get only the loopback interface", remedy: "99-loopback.conf"},
		{name: "a loopback behind", change: all(network(mode("bridge", "99-loopback.conf")), loopbacks("99-loopback.conf")), id: "pod-network", level: OK, what: "(bridge)"},
		{name: "a loopback alone for another's network", change: all(network(mode("cni", "99-loopback.conf")), loopbacks("99-loopback.conf")), id: "pod-network", level: Warn, what: "no network configuration except for the loopback", remedy: "network.mode: bridge"},
		{name: "a loopback before another's network", change: all(network(mode("cni", "00-loopback.conf", "10-x.conf")), loopbacks("00-loopback.conf")), id: "pod-network", level: Warn, what: "uses /etc/cni/net.d/00-loopback.conf", remedy: "remove"},
		{name: "no list of configurations", change: network(func(n *Network) { n.Err = "list network configurations: not a directory" }), id: "pod-network", level: Warn, what: "cannot list network configurations: not a directory", remedy: "network.configFolder"},

		{name: "loopback there", change: loopbackPlugin(PluginInstalled, true), id: "loopback-plugin", level: OK, what: "/opt/cni/bin/loopback"},
		{name: "loopback not there yet", change: all(loopbackPlugin(PluginMissing, true), network(func(n *Network) { n.Ours = false })), id: "loopback-plugin", level: OK, what: "when it starts"},
		{name: "loopback not there any more", change: loopbackPlugin(PluginMissing, true), id: "loopback-plugin", level: Warn, what: "pods get no network", remedy: "start tinylet"},
		{name: "loopback cannot be put there", change: loopbackPlugin(PluginMissing, false), id: "loopback-plugin", level: Fail, what: "pods get no network", remedy: "use_internal_loopback"},
		{name: "sandbox image there", change: sandbox(Yes, Yes), id: "sandbox-image", level: OK, what: "present and pinned"},
		{name: "sandbox image not there", change: sandbox(No, No), id: "sandbox-image", level: Warn, what: "registry.k8s.io/pause:3.8", remedy: "imagesFolder"},
		{name: "sandbox image not pinned", change: sandbox(Yes, No), id: "sandbox-image", level: Warn, what: "not pinned", remedy: "pinned_images.sandbox"},
		{name: "plugin not linked yet", change: all(plugin(PluginMissing, true), network(func(n *Network) { n.Ours = false })), id: "network-plugin", level: OK, what: "when it starts"},
		{name: "plugin not linked any more", change: plugin(PluginMissing, true), id: "network-plugin", level: Warn, what: "tinylet-cni does not exist", remedy: "start tinylet"},
		{name: "plugin cannot be linked", change: all(plugin(PluginMissing, false), network(func(n *Network) { n.Ours = false })), id: "network-plugin", level: Fail, what: "tinylet-cni does not exist", remedy: "ln -s /usr/bin/tinylet /opt/cni/bin/tinylet-cni"},
		{name: "plugin leads nowhere", change: plugin(PluginDangling, true), id: "network-plugin", level: Warn, what: "links to /usr/bin/tinylet", remedy: "start tinylet"},
		{name: "plugin leads nowhere for good", change: plugin(PluginDangling, false), id: "network-plugin", level: Fail, what: "links to /usr/bin/tinylet", remedy: "ln -s"},
		{name: "plugin is no program", change: plugin(PluginNotExecutable, true), id: "network-plugin", level: Fail, what: "not an executable file", remedy: "chmod"},

		{name: "the kernel does not tell", change: network(func(n *Network) { n.Host = HostNetwork{Err: "no memory", RulesErr: "not permitted"} }), id: "network-overlap", level: Warn, what: "overlap 10.88.0.0/24 and fd00:88::/64: no memory", remedy: "as root"},
		{name: "nftables do not tell", change: network(func(n *Network) { n.Host.RulesKnown, n.Host.RulesErr = false, "not permitted" }), id: "forward-drop", level: Warn, what: "not permitted", remedy: "as root"},
		{name: "no overlap", change: uses(), id: "network-overlap", level: OK, what: "10.88.0.0/24 and fd00:88::/64"},
		{name: "overlap with the host's network", change: uses(address("10.88.0.0/16", "eth1")), id: "network-overlap", level: Fail, what: "pod network 10.88.0.0/24 and 10.88.0.0/16 (address on eth1)", remedy: "network.podCIDRs"},
		{name: "overlap with one address", change: uses(address("10.88.0.7/32", "wg0")), id: "network-overlap", level: Fail, what: "10.88.0.7/32", remedy: "--cluster-cidr"},
		{name: "overlap of IPv6", change: uses(address("fd00:88::/48", "eth1")), id: "network-overlap", level: Fail, what: "pod network fd00:88::/64 and fd00:88::/48", remedy: "network.podCIDRs"},
		{name: "overlap with a route", change: uses(route("10.88.0.128/25", "tun0")), id: "network-overlap", level: Fail, what: "10.88.0.128/25 (route on tun0)", remedy: "network.podCIDRs"},
		{name: "overlap with the same route", change: uses(route("10.88.0.0/24", "tun0")), id: "network-overlap", level: Fail, what: "pod network 10.88.0.0/24 and 10.88.0.0/24", remedy: "network.podCIDRs"},
		{name: "within a larger route", change: uses(route("10.0.0.0/8", "tun0")), id: "network-overlap", level: Warn, what: "10.0.0.0/8", remedy: "network.podCIDRs"},
		{name: "several overlaps", change: uses(route("10.0.0.0/8", "tun0"), address("10.88.0.0/24", "eth1")), id: "network-overlap", level: Fail, what: "on tun0); pod network 10.88.0.0/24", remedy: "network.podCIDRs"},
		{name: "several overlaps, the worse first", change: uses(address("10.88.0.0/24", "eth1"), route("10.0.0.0/8", "tun0")), id: "network-overlap", level: Fail, what: "on tun0", remedy: "network.podCIDRs"},

		{name: "one bridge", change: uses(bridge("10.99.0.0/24", "docker0")), id: "second-bridge", level: OK, what: "tinylet0"},
		{name: "two bridges", change: uses(bridge("10.88.0.0/16", "cni0"), bridge("fd00:88::/64", "cni0")), id: "second-bridge", level: Warn, what: "cni0 (10.88.0.0/16), cni0 (fd00:88::/64)", remedy: "ip link delete cni0; or"},
		{name: "three bridges", change: uses(bridge("10.88.0.0/16", "podman0"), bridge("10.88.0.0/24", "cni0")), id: "second-bridge", level: Warn, what: "podman0 (10.88.0.0/16)", remedy: "ip link delete cni0, ip link delete podman0;"},

		{name: "nothing drops", change: uses(), id: "forward-drop", level: OK, what: "no other nftables table"},
		{name: "Docker drops", change: drops(DroppingChain{"ip", "filter", "FORWARD"}, DroppingChain{"inet", "firewalld", "filter_FORWARD"}), id: "forward-drop", level: Warn, what: "chain FORWARD of table ip filter, chain filter_FORWARD of table inet firewalld, where no rule names tinylet0", remedy: "iptables -I DOCKER-USER -i tinylet0"},
		{name: "systemd driver without systemd", change: func(f *Facts) { f.Runtime.CgroupDriver = "systemd" }, id: "cgroup-driver", level: Fail, what: "init", remedy: "SystemdCgroup = false"},
		{name: "systemd driver with systemd", change: func(f *Facts) { f.Runtime.CgroupDriver, f.Init = "systemd", "systemd" }, id: "cgroup-driver", level: OK, what: "systemd"},
		{name: "systemd driver and no answer", change: func(f *Facts) {
			f.Runtime.CgroupDriver, f.Init, f.Runtime.Systemd = "systemd", "systemd", "no way"
		}, id: "cgroup-driver", level: Fail, what: "no way", remedy: "dbus.service"},
		{name: "systemd driver without the bus", change: func(f *Facts) {
			f.Runtime.CgroupDriver, f.Init, f.Runtime.SystemBus = "systemd", "systemd", "no bus"
		}, id: "cgroup-driver", level: Warn, what: "no bus", remedy: "dbus.socket"},
		{name: "driver not told", change: func(f *Facts) { f.Runtime.CgroupDriver = "" }, id: "cgroup-driver", level: OK, what: "does not report"},

		{name: "clock before the build", change: func(f *Facts) { f.Now = time.Unix(100, 0) }, id: "clock", level: Warn, what: "1970-01-01 00:01:40", remedy: "NTP"},
		{name: "clock before any release", change: func(f *Facts) { f.Built, f.Now = time.Time{}, earliest.Add(-1) }, id: "clock", level: Warn, what: "any release", remedy: "RTC"},
		{name: "clock far ahead", change: func(f *Facts) { f.Now = f.Built.AddDate(40, 0, 0) }, id: "clock", level: Warn, what: "2066", remedy: "NTP"},
		{name: "32 bits", change: func(f *Facts) { f.Arch = "arm" }, id: "year-2038", level: OK, what: "2038"},
		{name: "32 bits past their end", change: func(f *Facts) { f.Arch, f.Now = "arm", end32.Add(time.Second) }, id: "year-2038", level: Warn, what: "2038", remedy: "64-bit"},

		{name: "bad name", change: func(f *Facts) { f.NodeName = "my_board" }, id: "node-name", level: Fail, what: "my_board", remedy: "--hostname-override"},
		{name: "no name", change: func(f *Facts) { f.NodeName = "" }, id: "node-name", level: Fail, what: `""`, remedy: "/etc/hostname"},
		{name: "name with capitals", change: func(f *Facts) { f.NodeName = "Board" }, id: "node-name", level: OK, what: "board"},
		{name: "unset name", change: func(f *Facts) { f.NodeName = "(none)" }, id: "node-name", level: Fail, what: "(none)", remedy: "/etc/hostname"},
		{name: "name of every host", change: func(f *Facts) { f.NodeName = "localhost" }, id: "node-name", level: Warn, what: "localhost", remedy: "/etc/hostname"},

		{name: "bad configuration", change: func(f *Facts) { f.Config.Err = "field x" }, id: "config", level: Fail, what: "field x", remedy: "field"},
		{name: "configuration with warnings", change: func(f *Facts) { f.Config.Warnings = []string{"a", "b"} }, id: "config", level: Warn, what: "a; b", remedy: "correct"},
		{name: "no configuration", change: func(f *Facts) { f.Config = Config{} }, id: "config", level: OK, what: "no configuration"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy()
			tt.change(&f)
			findings := Evaluate(f)
			seen := map[string]bool{}
			found := false
			for _, got := range findings {
				if seen[got.ID] {
					t.Errorf("two findings %q", got.ID)
				}
				seen[got.ID] = true
				if got.What == "" || (got.Level != OK) != (got.Remedy != "") {
					t.Errorf("finding %+v", got)
				}
				if got.ID != tt.id {
					continue
				}
				found = true
				if got.Level != tt.level || !strings.Contains(got.What, tt.what) || !strings.Contains(got.Remedy, tt.remedy) {
					t.Errorf("finding %+v, want %s with %q and %q", got, tt.level, tt.what, tt.remedy)
				}
			}
			if !found {
				t.Errorf("no finding %q in %+v", tt.id, findings)
			}
			if Failed(findings) && tt.level != Fail {
				t.Errorf("the node is said to fail: %+v", findings)
			}
		})
	}
}

func TestEvaluateHealthy(t *testing.T) {
	for _, f := range Evaluate(healthy()) {
		if f.Level != OK {
			t.Errorf("finding %+v", f)
		}
	}
}

func TestEvaluateNothing(t *testing.T) {
	findings := Evaluate(Facts{})
	if !Failed(findings) {
		t.Errorf("a system of which nothing is known can be a node: %+v", findings)
	}
}

func TestMemoryCauseIsToldWithoutATreeOfVersion2(t *testing.T) {
	f := healthy()
	f.Cgroup = Cgroup{Kind: CgroupHybrid}
	commandLine(&f, "cgroup_disable=memory")
	var ids []string
	for _, finding := range Evaluate(f) {
		if finding.Level == Fail {
			ids = append(ids, finding.ID)
		}
	}
	if got := strings.Join(ids, " "); got != "cgroup-v2 cgroup-memory" {
		t.Errorf("failures: %s", got)
	}
}

// all applies several changes.
func all(changes ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		for _, change := range changes {
			change(f)
		}
	}
}

func forward(known Tristate) func(*Facts) { return func(f *Facts) { f.IPForward = known } }

func forward6(known Tristate) func(*Facts) { return func(f *Facts) { f.IPv6Forward = known } }

func services(f *Facts) { f.Network.Services = true }

func notReady(f *Facts) { f.Runtime.NetworkReady = &Condition{Reason: "NetworkPluginNotReady"} }

func loopbackPlugin(state PluginState, writable bool) func(*Facts) {
	return network(func(n *Network) {
		n.Loopback = Plugin{Path: "/opt/cni/bin/loopback", State: state, Writable: writable}
	})
}

func sandbox(present, pinned Tristate) func(*Facts) {
	return func(f *Facts) {
		f.Runtime.Sandbox = SandboxImage{Name: "registry.k8s.io/pause:3.8", Present: present, Pinned: pinned}
	}
}

func plugin(state PluginState, writable bool) func(*Facts) {
	return network(func(n *Network) { n.Plugin.State, n.Plugin.Writable = state, writable })
}

func drops(chains ...DroppingChain) func(*Facts) {
	return network(func(n *Network) { n.Host.Dropping = chains })
}

// The findings of the pod network depend on who sets it up.
func TestNetworkIsJudgedByItsMode(t *testing.T) {
	for name, want := range map[string]string{
		"bridge": "veth bridge nf-tables masquerade pod-spoofing bandwidth pod-network network-plugin network-overlap second-bridge forward-drop",
		"routed": "veth bridge nf-tables masquerade pod-spoofing bandwidth pod-network network-plugin network-overlap second-bridge forward-drop",
		"host":   "pod-network network-plugin",
		"cni":    "veth bridge nf-tables pod-network",
	} {
		f := healthy()
		f.Network.Mode = name
		var got []string
		for _, finding := range append(checkNetworkFeatures(&f.Kernel, &f.Network), checkNetwork(&f)...) {
			got = append(got, finding.ID)
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("mode %s (-want +got):\n%s", name, diff)
		}
	}
}

// Without IPv6 pods there are no findings of IPv6.
func TestForwardingOfIPv6IsJudgedWhereItIsNeeded(t *testing.T) {
	for name, change := range map[string]func(*Network){
		"IPv4 alone": func(n *Network) { n.Pods = n.Pods[:1] },
		"unknown":    func(n *Network) { n.Pods = nil },
		"host":       mode("host"),
	} {
		f := healthy()
		f.IPv6Forward = No
		change(&f.Network)
		for _, finding := range checkSettings(&f) {
			if finding.ID == "ip6-forward" {
				t.Errorf("%s: %+v", name, finding)
			}
		}
	}
}

// There are no findings of a host that was not read, nor of unknown networks.
func TestNetworkThatIsNotKnown(t *testing.T) {
	f := healthy()
	f.Network.Host = HostNetwork{}
	for _, finding := range checkNetwork(&f) {
		if finding.ID == "network-overlap" || finding.ID == "second-bridge" || finding.ID == "forward-drop" {
			t.Errorf("finding %+v", finding)
		}
	}
	f = healthy()
	f.Network.Pods = nil
	for _, finding := range checkNetwork(&f) {
		if finding.ID == "network-overlap" || finding.ID == "second-bridge" {
			t.Errorf("finding %+v", finding)
		}
	}
}

func module(name string, known Tristate) func(*Facts) {
	return func(f *Facts) { f.Kernel.Modules[name] = known }
}

func directory(change func(*Directory)) func(*Facts) {
	return func(f *Facts) { change(&f.Directories[0]) }
}

func runtimeFails(kind RuntimeFailure) func(*Facts) {
	return func(f *Facts) { f.Runtime = Runtime{Endpoint: "unix:///r", Kind: kind, Err: "the error"} }
}

// TestEvictionIsShown: the finding shows what pods may use and why the rest is not
// allocatable.
func TestEvictionIsShown(t *testing.T) {
	for want, e := range map[string]Eviction{
		"pods may use 480 MiB of 512 MiB of memory; pods are evicted below 32 MiB available, the default for this much memory":                                                          {Known: true, Hard: 32 * mebibyte, Default: true},
		"pods may use 412 MiB of 512 MiB of memory; pods are evicted below 100 MiB available, by evictionHard in the configuration":                                                     {Known: true, Hard: 100 * mebibyte},
		"pods may use 492 MiB of 512 MiB of memory; 20 MiB are reserved by kubeReserved and systemReserved; no pod is evicted for memory, because evictionHard has no memory.available": {Known: true, Reserved: 20 * mebibyte},
	} {
		f := healthy()
		f.Eviction = e
		if got := checkEviction(&f); len(got) != 1 || got[0].Level != OK || got[0].What != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	unread := healthy()
	if got := checkEviction(&unread); got != nil {
		t.Errorf("without a configuration: %+v", got)
	}
}
