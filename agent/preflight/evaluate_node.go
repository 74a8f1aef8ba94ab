package preflight

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tinylet/tinylet/agent/config"
)

func judgeSettings(f *Facts) []Finding {
	out := []Finding{judgeForwarding(f)}
	if f.Network.hasIPv6() {
		out = append(out, judgeForwarding6(f))
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
			"set failSwapOn: false in the configuration, or swapoff -a and take swap out of /etc/fstab"))
	default:
		out = append(out, ok("swap", "swap is on, %s", mib(f.Memory.Swap)))
	}
	return out
}

// judgeForwarding: tinylet sets it where it makes the pods' network itself, and
// nobody needs it where pods have the host's.
func judgeForwarding(f *Facts) Finding {
	const id = "ip-forward"
	const remedy = "set net.ipv4.ip_forward=1 with sysctl -w and in /etc/sysctl.d"
	switch {
	case f.IPForward == Yes:
		return ok(id, "packets are forwarded (net.ipv4.ip_forward)")
	case f.Network.own():
		return ok(id, "tinylet sets net.ipv4.ip_forward when it makes the pods' network (kubeadm join wants it before that)")
	case f.Network.Mode == config.NetworkHost:
		return ok(id, "packets need not be forwarded: pods have the host's network (kubeadm join wants net.ipv4.ip_forward all the same)")
	case f.IPForward == No:
		return warn(id, "net.ipv4.ip_forward is 0: pods reach nothing outside this node, and kubeadm join refuses it", remedy)
	}
	return warn(id, "cannot tell whether packets are forwarded", "see that sysctl net.ipv4.ip_forward is 1")
}

// judgeForwarding6 is of IPv6, which nobody needs whose pods have none of it.
func judgeForwarding6(f *Facts) Finding {
	const id = "ip6-forward"
	const name = "net.ipv6.conf.all.forwarding"
	switch f.IPv6Forward {
	case Yes:
		return ok(id, "packets of IPv6 are forwarded (%s)", name)
	case No:
		if f.Network.own() {
			return ok(id, "tinylet sets %s when it makes the pods' network", name)
		}
		return warn(id, name+" is 0: pods reach nothing outside this node by IPv6",
			"set "+name+"=1 with sysctl -w and in /etc/sysctl.d, and accept_ra=2 of interfaces that learn their route from routers")
	case Unknown:
	}
	if f.Network.own() && f.IPForward != Unknown { // /proc is there, and that is not
		return fail(id, "the kernel has no IPv6 ("+name+"), and the pods are to have "+listed(f.Network.Pods)+": they get no network",
			"take ipv6.disable=1 off the kernel's command line, "+rebuild("CONFIG_IPV6")+", or leave IPv6 out of network.podCIDRs")
	}
	return warn(id, "cannot tell whether packets of IPv6 are forwarded", "see that sysctl "+name+" is 1")
}

// Memory sizes. A board sold with 256 MB shows some 180 MiB when the GPU has
// its default share.
const (
	memoryWanted    = 200 * mebibyte
	availableWanted = 32 * mebibyte
)

func judgeMemory(f *Facts) []Finding {
	const id = "memory"
	m := f.Memory
	switch {
	case m.Total == 0:
		return []Finding{warn(id, "cannot tell how much memory there is", "mount /proc")}
	case m.Total < memoryWanted:
		remedy := "use a board with 256 MB or more"
		if f.Board.RaspberryPi {
			remedy = "give the GPU less: set gpu_mem=16 in config.txt beside cmdline.txt, and reboot"
		}
		return []Finding{warn(id, fmt.Sprintf("%s of memory leave little for pods", mib(m.Total)), remedy)}
	case m.Available < availableWanted:
		return []Finding{warn(id, fmt.Sprintf("only %s of %s of memory are available", mib(m.Available), mib(m.Total)),
			"stop what is not needed, or set memory limits on pods")}
	}
	return []Finding{ok(id, "%s of %s of memory are available", mib(m.Available), mib(m.Total))}
}

func judgeFolders(f *Facts) []Finding {
	var out []Finding
	for i := range f.Folders {
		out = append(out, judgeFolder(&f.Folders[i]))
	}
	return out
}

// judgeFolder: below a tenth free there is a warning, below a hundredth, or
// what the folder needs, the node cannot work.
func judgeFolder(d *Folder) Finding {
	id := "folder-" + d.ID
	makeRoom := "make room in the file system of " + d.Exists + ", or put it on a larger one"
	switch {
	case !d.Writable:
		return fail(id, d.Path+" cannot be written to", "mount the file system of "+d.Exists+" read-write, or put the folder elsewhere; run this check as root")
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
	return ok(id, "%s", free)
}

// earliest is before any release: a clock before it was never set.
var earliest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// latest is so far after the build that a clock there was set wrongly.
const latest = 20 * 365 * 24 * time.Hour

// end32 is when a signed 32-bit count of seconds ends.
var end32 = time.Unix(1<<31-1, 0)

func judgeClock(f *Facts) []Finding {
	since, what := f.Built, "this binary was built"
	if since.IsZero() {
		since, what = earliest, "any release of tinylet"
	}
	const remedy = "give the board a clock: an RTC with hwclock -s at boot, NTP, or fake-hwclock; until then set it with date -s"
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
	return append(out, ok("year-2038", "32-bit system: programs with 32-bit times end on 2038-01-19, tinylet does not"))
}

func judgeName(f *Facts) []Finding {
	const id = "node-name"
	name := strings.ToLower(f.NodeName)
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return []Finding{fail(id, fmt.Sprintf("the node's name %q is none that Kubernetes takes: %s", name, problems[0]),
			"set the host's name in /etc/hostname, or start tinylet with --hostname-override")}
	}
	if name == "localhost" || name == "(none)" {
		return []Finding{warn(id, fmt.Sprintf("the node's name is %q, as if none were set", name),
			"set the host's name in /etc/hostname, or start tinylet with --hostname-override")}
	}
	return []Finding{ok(id, "the node's name is %s", name)}
}

func judgeConfig(f *Facts) []Finding {
	const id = "config"
	file := f.Config.File
	if file == "" {
		file = "the command line"
	}
	if f.Config.Err != "" {
		return []Finding{fail(id, "the configuration in "+file+" cannot be used: "+f.Config.Err, "correct the field that is named; the README lists them")}
	}
	if len(f.Config.Warnings) > 0 {
		return []Finding{warn(id, "the configuration in "+file+" works, but: "+strings.Join(f.Config.Warnings, "; "), "correct what is named")}
	}
	if f.Config.File == "" {
		return []Finding{ok(id, "no configuration file is in use")}
	}
	return []Finding{ok(id, "the configuration in %s is valid", file)}
}
