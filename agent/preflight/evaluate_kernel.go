package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tinylet/tinylet/agent/config"
)

// Kernel versions. Before minKernel, cgroup v2 has no freezer (added in 5.2), which
// container runtimes need to stop and pause containers. Kubernetes requires
// recommendedKernel for cgroup v2.
var (
	minKernel         = releaseNumber{5, 2}
	recommendedKernel = releaseNumber{5, 8}
)

func checkKernel(f *Facts) []Finding {
	const id = "kernel"
	r, parsed := parseRelease(f.Kernel.Release)
	if !parsed {
		return []Finding{warn(id, fmt.Sprintf("cannot parse kernel version %q", f.Kernel.Release),
			"make sure that uname -r is 5.8 or later, and that /proc is mounted")}
	}
	on := f.Kernel.Release + " on " + f.Arch
	if f.Board.Name != "" {
		on += ", " + f.Board.Name
	}
	switch {
	case r.number.compare(minKernel) < 0:
		return []Finding{fail(id, "kernel "+on+": before 5.2, cgroup v2 cannot freeze containers", "install kernel 5.8 or later")}
	case r.number.compare(recommendedKernel) < 0:
		return []Finding{warn(id, "kernel "+on+": Kubernetes requires 5.8 or later for cgroup v2", "install kernel 5.8 or later")}
	}
	return []Finding{ok(id, "kernel %s", on)}
}

func checkFeatures(f *Facts) []Finding {
	k := &f.Kernel
	out := []Finding{checkModules(k, "overlayfs", Fail, "container images cannot be mounted", "overlay")}
	out = append(out, checkNetworkFeatures(k, &f.Network)...)
	out = append(out,
		checkKnown("seccomp", k.Seccomp, "seccomp filters", "seccomp profiles of pods cannot be applied", rebuild("CONFIG_SECCOMP", "CONFIG_SECCOMP_FILTER")),
		checkUserNamespaces(k),
		checkPressure(k))
	return out
}

// checkNetworkFeatures checks what the pod network needs. For another network
// plugin, only the links are known to be required. Pods on the host's network need
// nothing.
func checkNetworkFeatures(k *Kernel, n *Network) []Finding {
	if n.Mode == config.NetworkHost {
		return nil
	}
	const noLinks = "pods without hostNetwork cannot be connected"
	out := []Finding{
		checkModules(k, "veth", Fail, noLinks, "veth"),
		checkModules(k, "bridge", Fail, noLinks, "bridge"),
	}
	if !n.own() {
		return append(out, checkModules(k, "nf-tables", Warn, "masquerading and host ports may not work", "nf_tables"))
	}
	const noRules = "pods without hostNetwork cannot start"
	tables := checkModules(k, "nf-tables", Fail, noRules, "nf_tables")
	if tables.Level == OK && k.Config["CONFIG_NF_TABLES_INET"] == "n" {
		tables = fail("nf-tables", "the kernel's nf_tables has no inet family: "+noRules, rebuild("CONFIG_NF_TABLES_INET"))
	}
	out = append(out, tables)
	if tables.Level != Fail { // the following need nf_tables
		out = append(out, checkModules(k, "masquerade", Fail, noRules, natModules...))
		out = append(out, checkSpoofing(k, n)...)
		if n.Services {
			out = append(out, checkModules(k, "services", Fail, "pods cannot reach Services (network.services)", serviceModules...))
		}
	}
	return append(out, checkModules(k, "bandwidth", Warn, "pods with bandwidth annotations do not start", "sch_tbf"))
}

// optionBridgeFamily lets nftables filter bridged packets. It has no module of its
// own.
const optionBridgeFamily = "CONFIG_NF_TABLES_BRIDGE"

// checkSpoofing checks whether pods can spoof addresses. Pods start without the
// bridge family too. It returns no finding if neither the kernel nor its
// configuration reports the family.
func checkSpoofing(k *Kernel, n *Network) []Finding {
	const id = "pod-spoofing"
	has := n.Host.BridgeFamily
	if has == Unknown {
		switch k.Config[optionBridgeFamily] {
		case "y", "m":
			has = Yes
		case "n":
			has = No
		}
	}
	switch has {
	case Yes:
		return []Finding{ok(id, "the kernel's nf_tables has the bridge family: pods can send only from their own addresses")}
	case No:
		return []Finding{warn(id, "the kernel's nf_tables has no bridge family: a pod can spoof the addresses of other pods and of the gateway", rebuild(optionBridgeFamily))}
	case Unknown:
	}
	return nil
}

// natModules are the modules that the rules of the pod network need.
var natModules = []string{"nf_conntrack", "nft_chain_nat", "nft_ct", "nft_fib_inet", "nft_masq", "nft_nat"}

// serviceModules are the modules that the rules of Services need in addition to
// natModules.
var serviceModules = []string{"nft_numgen", "nft_reject_inet"}

// checkModules checks modules that are only useful together. without is the severity
// if one is missing.
func checkModules(k *Kernel, id string, without Level, harm string, modules ...string) Finding {
	install, modprobe, lacking := "install the module", "modprobe", "without it"
	if len(modules) > 1 {
		install, modprobe, lacking = "install the modules", "modprobe -a", "without"
	}
	var missing, unknown []string
	for _, m := range modules {
		switch k.Modules[m] {
		case No:
			missing = append(missing, m)
		case Unknown:
			unknown = append(unknown, m)
		case Yes:
		}
	}
	switch {
	case missing != nil:
		names, remedy := strings.Join(missing, " "), rebuild(options(missing)...)
		if slices.ContainsFunc(options(missing), func(option string) bool { return k.Config[option] != "n" }) {
			remedy = fmt.Sprintf("%s %s for kernel %s (see %s %s), or %s", install, names, k.Release, modprobe, names, remedy)
		}
		return Finding{ID: id, Level: without, What: fmt.Sprintf("the kernel has no %s: %s", strings.Join(missing, ", "), harm), Remedy: remedy}
	case unknown != nil:
		return warn(id, fmt.Sprintf("cannot determine whether the kernel has %s; %s, %s", strings.Join(unknown, ", "), lacking, harm),
			fmt.Sprintf("try %s %s; if it fails, %s", modprobe, strings.Join(unknown, " "), rebuild(options(unknown)...)))
	}
	return ok(id, "the kernel has %s", strings.Join(modules, ", "))
}

// options returns the options of the kernel's configuration for modules.
func options(modules []string) (all []string) {
	for _, f := range features {
		if slices.Contains(modules, f.module) && !slices.Contains(all, f.option) {
			all = append(all, f.option)
		}
	}
	return all
}

func checkKnown(id string, known Tristate, what, harm, remedy string) Finding {
	switch known {
	case Yes:
		return ok(id, "the kernel has %s", what)
	case No:
		return warn(id, fmt.Sprintf("the kernel has no %s: %s", what, harm), remedy)
	case Unknown:
	}
	return warn(id, fmt.Sprintf("cannot determine whether the kernel has %s; without, %s", what, harm), "mount /proc; "+remedy)
}

func checkUserNamespaces(k *Kernel) Finding {
	remedy := rebuild("CONFIG_USER_NS")
	if k.Config["CONFIG_USER_NS"] == "y" {
		remedy = "set the sysctl user.max_user_namespaces above 0"
	}
	return checkKnown("user-namespaces", k.UserNamespaces, "user namespaces", "pods with hostUsers: false cannot run", remedy)
}

func checkPressure(k *Kernel) Finding {
	remedy := "add psi=1 to the kernel's command line"
	switch {
	case slices.Contains(k.CommandLine, "psi=0"):
		remedy = "remove psi=0 from the kernel's command line"
	case k.Config["CONFIG_PSI"] == "n":
		remedy = rebuild("CONFIG_PSI")
	}
	return checkKnown("pressure", k.Pressure, "pressure stall information (PSI)", "memory pressure is detected only by memory.events, when pods reach their limits, and by infrequent polls", remedy)
}

// lastSwitch returns the index of the last command line option with value in the
// list of key, such as cgroup_disable=memory,cpu. It returns -1 if there is none.
func lastSwitch(commandLine []string, key, value string) int {
	at := -1
	for i, word := range commandLine {
		list, found := strings.CutPrefix(word, key+"=")
		if found && slices.Contains(strings.Split(list, ","), value) {
			at = i
		}
	}
	return at
}
