package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// controller is a cgroup controller that pods need.
type controller struct {
	v2, v1 string // its names
	option string // of the kernel's configuration
	need   Level  // how bad it is to lack it
	harm   string
}

var controllers = []controller{
	{"memory", "memory", "CONFIG_MEMCG", Fail, "no pod's memory can be limited or measured, and container runtimes refuse to set limits"},
	{"cpu", "cpu", "CONFIG_CGROUP_SCHED", Fail, "no pod's CPU can be limited"},
	{"pids", "pids", "CONFIG_CGROUP_PIDS", Fail, "one pod can use up all processes"},
	{"io", "blkio", "CONFIG_BLK_CGROUP", Warn, "disk use of pods cannot be told apart"},
	{"cpuset", "cpuset", "CONFIG_CPUSETS", Warn, "pods cannot be given CPUs of their own"},
}

// Command line words by which the Raspberry Pi's kernel gets its memory
// controller back. Its device trees, and before 6.12 its kernel itself, turn
// that off to save memory; words of cmdline.txt come after the device
// tree's, and the last one wins (github.com/raspberrypi/linux: pull requests
// 2201 and 6439).
const enableMemory = "cgroup_enable=memory cgroup_memory=1"

func judgeCgroups(f *Facts) []Finding {
	kind := judgeCgroupKind(f)
	out := []Finding{kind}
	for i := range controllers {
		c := &controllers[i]
		switch {
		case slices.Contains(f.Cgroup.Controllers, c.v2):
			out = append(out, ok("cgroup-"+c.v2, "cgroup controller %s is there", c.v2))
		case c.v2 == "memory":
			if cause, remedy, known := memoryCause(f); known || kind.Level == OK {
				out = append(out, fail("cgroup-memory", "the memory controller is missing: "+cause+"; "+c.harm, remedy))
			}
		case kind.Level == OK:
			out = append(out, missingController(f, c))
		}
	}
	return out
}

func judgeCgroupKind(f *Facts) Finding {
	const id = "cgroup-v2"
	switch f.Cgroup.Kind {
	case CgroupUnified:
		return ok(id, "cgroup version 2 is at /sys/fs/cgroup")
	case CgroupHybrid, CgroupV1:
		held := ""
		if len(f.Cgroup.InV1) > 0 {
			held = " and holds " + strings.Join(f.Cgroup.InV1, ", ")
		}
		remedy := "have /sys/fs/cgroup mounted by: mount -t cgroup2 cgroup2 /sys/fs/cgroup, and mount no cgroup version 1"
		if f.Init == "systemd" {
			remedy = "add systemd.unified_cgroup_hierarchy=1 to the kernel's command line and reboot"
		}
		return fail(id, "cgroup version 1 is mounted"+held+"; only version 2 is used", remedy)
	case CgroupNone:
	}
	if f.Kernel.Config["CONFIG_CGROUPS"] == "n" {
		return fail(id, "the kernel has no cgroups", rebuild("CONFIG_CGROUPS", "CONFIG_MEMCG", "CONFIG_CGROUP_PIDS"))
	}
	return fail(id, "no cgroup tree is mounted at /sys/fs/cgroup", "mount it at boot: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
}

// memoryCause finds out why there is no memory controller; known is false
// where that is a guess.
func memoryCause(f *Facts) (cause, remedy string, known bool) {
	line := f.Kernel.CommandLine
	off, on := lastSwitch(line, "cgroup_disable", "memory"), lastSwitch(line, "cgroup_enable", "memory")
	switch {
	case f.Kernel.Config["CONFIG_MEMCG"] == "n":
		return "the kernel was built without it (CONFIG_MEMCG)", rebuild("CONFIG_MEMCG"), true
	case off >= 0 && on > off:
		return "cgroup_disable=memory is on the kernel's command line, and this kernel does not heed the cgroup_enable=memory after it",
			"take cgroup_disable=memory off the command line or out of the device tree's bootargs, or install another kernel", true
	case off >= 0 && f.Board.RaspberryPi:
		return "the Raspberry Pi firmware puts cgroup_disable=memory on the kernel's command line", raspberryRemedy(f), true
	case off >= 0:
		return "cgroup_disable=memory is on the kernel's command line",
			"take cgroup_disable=memory off the kernel's command line, which the boot loader sets (on Debian /etc/default/grub or extlinux.conf, on U-Boot the variable bootargs), and reboot", true
	case slices.Contains(f.Cgroup.InV1, "memory"):
		return "a cgroup version 1 tree holds it", "unmount the cgroup version 1 tree of memory, or add cgroup_no_v1=all to the kernel's command line and reboot", true
	case f.Board.RaspberryPi && on < 0:
		return "Raspberry Pi kernels have it off unless the command line asks for it", raspberryRemedy(f), true
	case slices.Contains(f.Cgroup.Disabled, "memory"):
		return "the kernel has it and it is off", "add cgroup_enable=memory to the kernel's command line, take cgroup_disable=memory off it, and reboot", true
	}
	return "the cause does not show", rebuild("CONFIG_MEMCG") + "; see that its command line does not have cgroup_disable=memory", false
}

func raspberryRemedy(f *Facts) string {
	file := f.BootCommandLine
	if file == "" {
		file = "/boot/firmware/cmdline.txt or /boot/cmdline.txt (cmdline.txt on the first partition of the card)"
	}
	return fmt.Sprintf("append %s to the one line in %s, take cgroup_disable=memory out of it where it stands there, and reboot", enableMemory, file)
}

func missingController(f *Facts, c *controller) Finding {
	what := fmt.Sprintf("the %s controller is missing: %s", c.v2, c.harm)
	remedy := rebuild(c.option)
	switch {
	case lastSwitch(f.Kernel.CommandLine, "cgroup_disable", c.v2) >= 0, lastSwitch(f.Kernel.CommandLine, "cgroup_disable", c.v1) >= 0:
		remedy = fmt.Sprintf("take %s out of cgroup_disable on the kernel's command line and reboot", c.v1)
	case slices.Contains(f.Cgroup.InV1, c.v2):
		remedy = fmt.Sprintf("unmount the cgroup version 1 tree of %s, or add cgroup_no_v1=all to the kernel's command line and reboot", c.v1)
	case f.Kernel.Config[c.option] == "y":
		remedy = "look for what holds it: cat /proc/cgroups, and the kernel's command line"
	}
	return Finding{ID: "cgroup-" + c.v2, Level: c.need, What: what, Remedy: remedy}
}
