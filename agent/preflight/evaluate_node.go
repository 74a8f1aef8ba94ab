package preflight

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tinylet/tinylet/agent/config"
)

func checkSettings(f *Facts) []Finding {
	out := []Finding{checkForwarding(f)}
	if f.Network.hasIPv6() {
		out = append(out, checkForwarding6(f))
	}
	switch f.SharedMount {
	case Yes:
		out = append(out, ok("mount-propagation", "the root mount is shared"))
	case No:
		out = append(out, warn("mount-propagation", "the root mount is private: volumes with mountPropagation do not work",
			"run at boot, before the container runtime: mount --make-rshared /"))
	case Unknown:
	}
	switch {
	case f.Memory.Swap == 0:
		out = append(out, ok("swap", "swap is off"))
	case f.FailSwapOn:
		out = append(out, warn("swap", fmt.Sprintf("swap is on (%s) and failSwapOn is true", mib(f.Memory.Swap)),
			"set failSwapOn: false in the configuration, or run swapoff -a and remove swap from /etc/fstab"))
	default:
		out = append(out, ok("swap", "swap is on, %s", mib(f.Memory.Swap)))
	}
	return out
}

// checkForwarding checks IPv4 forwarding. tinylet sets it if it sets up the pod
// network. Nothing needs it if pods use the host's network.
func checkForwarding(f *Facts) Finding {
	const id = "ip-forward"
	const remedy = "set net.ipv4.ip_forward=1 with sysctl -w and in /etc/sysctl.d"
	switch {
	case f.IPForward == Yes:
		return ok(id, "IPv4 forwarding is on (net.ipv4.ip_forward)")
	case f.Network.own():
		return ok(id, "tinylet sets net.ipv4.ip_forward when it sets up the pod network (kubeadm join requires it before)")
	case f.Network.Mode == config.NetworkHost:
		return ok(id, "IPv4 forwarding is not needed: pods use the host's network (kubeadm join requires net.ipv4.ip_forward anyway)")
	case f.IPForward == No:
		return warn(id, "net.ipv4.ip_forward is 0: pods reach nothing outside this node, and kubeadm join fails", remedy)
	}
	return warn(id, "cannot determine whether IPv4 forwarding is on", "make sure that sysctl net.ipv4.ip_forward is 1")
}

// checkForwarding6 checks IPv6 forwarding, for pods that have IPv6 addresses.
func checkForwarding6(f *Facts) Finding {
	const id = "ip6-forward"
	const name = "net.ipv6.conf.all.forwarding"
	switch f.IPv6Forward {
	case Yes:
		return ok(id, "IPv6 forwarding is on (%s)", name)
	case No:
		if f.Network.own() {
			return ok(id, "tinylet sets %s when it sets up the pod network", name)
		}
		return warn(id, name+" is 0: pods reach nothing outside this node by IPv6",
			"set "+name+"=1 with sysctl -w and in /etc/sysctl.d, and accept_ra=2 of interfaces that learn their route from routers")
	case Unknown:
	}
	if f.Network.own() && f.IPForward != Unknown { // /proc is mounted and lacks the file
		return fail(id, "the kernel has no IPv6 ("+name+"), and the pod network is "+listed(f.Network.Pods)+": pods get no network",
			"remove ipv6.disable=1 from the kernel's command line, "+rebuild("CONFIG_IPV6")+", or remove IPv6 from network.podCIDRs")
	}
	return warn(id, "cannot determine whether IPv6 forwarding is on", "make sure that sysctl "+name+" is 1")
}

// Memory sizes. A board sold with 256 MB reports about 180 MiB with the default
// share of the GPU.
const (
	minMemory    = 200 * mebibyte
	minAvailable = 32 * mebibyte
)

func checkMemory(f *Facts) []Finding {
	const id = "memory"
	m := f.Memory
	switch {
	case m.Total == 0:
		return []Finding{warn(id, "cannot read the memory size", "mount /proc")}
	case m.Total < minMemory:
		remedy := "use a board with 256 MB or more"
		if f.Board.RaspberryPi {
			remedy = "reduce the GPU's share: set gpu_mem=16 in config.txt next to cmdline.txt, and reboot"
		}
		return []Finding{warn(id, fmt.Sprintf("%s of memory leave little for pods", mib(m.Total)), remedy)}
	case m.Available < minAvailable:
		return []Finding{warn(id, fmt.Sprintf("only %s of %s of memory are available", mib(m.Available), mib(m.Total)),
			"stop what is not needed, or set memory limits on pods")}
	}
	return []Finding{ok(id, "%s of %s of memory are available", mib(m.Available), mib(m.Total))}
}

func checkDirectories(f *Facts) []Finding {
	var out []Finding
	for i := range f.Directories {
		out = append(out, checkDirectory(&f.Directories[i]))
	}
	return out
}

// checkDirectory warns below 10 % free. Below 1 %, or below Directory.Needs, the
// node cannot work.
func checkDirectory(d *Directory) Finding {
	id := "folder-" + d.ID
	makeRoom := "make room in the file system of " + d.ExistingPath + ", or put it on a larger one"
	switch {
	case !d.Writable:
		return fail(id, d.Path+" is not writable", "mount the file system of "+d.ExistingPath+" read-write, or configure another directory; run this check as root")
	case d.Total == 0:
		return ok(id, "%s is writable", d.Path)
	}
	free := fmt.Sprintf("%s of %s are free for %s", mib(d.Free), mib(d.Total), d.Path)
	switch {
	case d.Free < d.Needs:
		return fail(id, free+"; at least "+mib(d.Needs)+" are needed", makeRoom)
	case d.Free < d.Total/100:
		return fail(id, "less than 1 %: "+free, makeRoom)
	case d.Inodes > 0 && d.InodesFree < d.Inodes/100:
		return fail(id, fmt.Sprintf("less than 1 %% of the inodes (%d of %d) are free for %s", d.InodesFree, d.Inodes, d.Path), makeRoom)
	case d.Free < d.Total/10:
		return warn(id, "less than 10 %: "+free, makeRoom)
	case d.Inodes > 0 && d.InodesFree < d.Inodes/10:
		return warn(id, fmt.Sprintf("less than 10 %% of the inodes (%d of %d) are free for %s", d.InodesFree, d.Inodes, d.Path), makeRoom)
	}
	if d.InMemory && d.LostWithMemory != "" {
		return warn(id, fmt.Sprintf("%s is in memory: a reboot loses %s, and they use memory until then", d.Path, d.LostWithMemory),
			"mount a directory of a disk at "+d.Path+" at boot, before the container runtime and tinylet start")
	}
	return ok(id, "%s", free)
}

// earliest is earlier than any release. An earlier time means that the clock was never
// set.
var earliest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// latest is the longest plausible time since the build. A later time means that the
// clock is wrong.
const latest = 20 * 365 * 24 * time.Hour

// end32 is the end of signed 32-bit seconds.
var end32 = time.Unix(1<<31-1, 0)

func checkClock(f *Facts) []Finding {
	since, what := f.Built, "this binary was built"
	if since.IsZero() {
		since, what = earliest, "any release of tinylet"
	}
	const remedy = "set the clock at boot: with an RTC and hwclock -s, NTP, or fake-hwclock; until then set it with date -s"
	now := f.Now.UTC().Format(time.DateTime)
	out := []Finding{ok("clock", "the clock shows %s UTC", now)}
	switch {
	case f.Now.Before(since):
		out[0] = warn("clock", fmt.Sprintf("the clock shows %s UTC, which is before %s (%s): certificates are not valid yet, so pulling images and joining a cluster fail",
			now, what, since.UTC().Format(time.DateOnly)), remedy)
	case f.Now.After(since.Add(latest)):
		out[0] = warn("clock", fmt.Sprintf("the clock shows %s UTC, which is too far ahead: certificates have expired by then", now), remedy)
	}
	if f.Arch != "arm" {
		return out
	}
	if f.Now.After(end32) {
		return append(out, warn("year-2038", "the clock is past 2038-01-19 on a 32-bit system: programs with 32-bit times are wrong",
			"use images whose C library has 64-bit times, or a 64-bit system"))
	}
	return append(out, ok("year-2038", "32-bit system: programs with 32-bit times fail from 2038-01-19 on, tinylet does not"))
}

func checkName(f *Facts) []Finding {
	const id = "node-name"
	name := strings.ToLower(f.NodeName)
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return []Finding{fail(id, fmt.Sprintf("the node's name %q is not valid in Kubernetes: %s", name, problems[0]),
			"set the host's name in /etc/hostname, or start tinylet with --hostname-override")}
	}
	if name == "localhost" || name == "(none)" {
		return []Finding{warn(id, fmt.Sprintf("the node's name is %q: no host name is set", name),
			"set the host's name in /etc/hostname, or start tinylet with --hostname-override")}
	}
	return []Finding{ok(id, "the node's name is %s", name)}
}

func checkConfig(f *Facts) []Finding {
	const id = "config"
	file := cmp.Or(f.Config.File, "the command line")
	if f.Config.Err != "" {
		return []Finding{fail(id, "the configuration in "+file+" is invalid: "+f.Config.Err, "correct the named field")}
	}
	if len(f.Config.Warnings) > 0 {
		return []Finding{warn(id, "the configuration in "+file+" has warnings: "+strings.Join(f.Config.Warnings, "; "), "correct the named fields")}
	}
	if f.Config.File == "" {
		return []Finding{ok(id, "no configuration file is in use")}
	}
	return []Finding{ok(id, "the configuration in %s is valid", file)}
}

// checkEviction reports how much memory pods may use, and what is reserved or kept
// free by eviction.
func checkEviction(f *Facts) []Finding {
	const id = "eviction"
	e, total := f.Eviction, f.Memory.Total
	if !e.Known || total == 0 {
		return nil
	}
	kept := e.Reserved + e.Hard
	if kept >= total {
		return []Finding{warn(id, fmt.Sprintf("no memory is allocatable of %s: %s are reserved, and pods are evicted below %s available", mib(total), mib(e.Reserved), mib(e.Hard)),
			"lower evictionHard[memory.available], kubeReserved or systemReserved in the configuration, or remove evictionHard to use the default for this much memory")}
	}
	text := fmt.Sprintf("pods may use %s of %s of memory", mib(total-kept), mib(total))
	if e.Reserved > 0 {
		text += fmt.Sprintf("; %s are reserved by kubeReserved and systemReserved", mib(e.Reserved))
	}
	switch {
	case e.Hard == 0:
		text += "; no pod is evicted for memory, because evictionHard has no memory.available"
	case e.Default:
		text += fmt.Sprintf("; pods are evicted below %s available, the default for this much memory", mib(e.Hard))
	default:
		text += fmt.Sprintf("; pods are evicted below %s available, by evictionHard in the configuration", mib(e.Hard))
	}
	return []Finding{ok(id, "%s", text)}
}
