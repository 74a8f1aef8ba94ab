package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// controller is a cgroup controller that pods need.
type controller struct {
	v2, v1 string // its names
	option string // of the kernel's configuration
	need   Level  // severity if it is missing
	harm   string
}

var controllers = []controller{
	{"memory", "memory", "CONFIG_MEMCG", Fail, "no pod's memory can be limited or measured, and container runtimes refuse to set limits"},
	{"cpu", "cpu", "CONFIG_CGROUP_SCHED", Fail, "no pod's CPU can be limited"},
	{"pids", "pids", "CONFIG_CGROUP_PIDS", Fail, "one pod can use all process IDs"},
	{"io", "blkio", "CONFIG_BLK_CGROUP", Warn, "disk I/O cannot be measured per pod"},
	{"cpuset", "cpuset", "CONFIG_CPUSETS", Warn, "pods cannot have exclusive CPUs"},
}

// RaspberryArguments returns the kernel arguments that enable the memory controller of the
// Raspberry Pi's kernel. Its device trees, and before 6.12 its kernel itself, disable the
// controller to save memory. Options in cmdline.txt come after those of the device tree,
// and the last one wins (github.com/raspberrypi/linux: pull requests 2201 and 6439).
func RaspberryArguments() []string { return []string{"cgroup_enable=memory", "cgroup_memory=1"} }

func checkCgroups(f *Facts) []Finding {
	kind := checkCgroupKind(f)
	out := []Finding{kind}
	for i := range controllers {
		c := &controllers[i]
		switch {
		case slices.Contains(f.Cgroup.Controllers, c.v2):
			out = append(out, ok("cgroup-"+c.v2, "cgroup controller %s is available", c.v2))
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

func checkCgroupKind(f *Facts) Finding {
	const id = "cgroup-v2"
	switch f.Cgroup.Kind {
	case CgroupUnified:
		return ok(id, "cgroup v2 is mounted at /sys/fs/cgroup")
	case CgroupHybrid, CgroupV1:
		held := ""
		if len(f.Cgroup.InV1) > 0 {
			held = " and has the controllers " + strings.Join(f.Cgroup.InV1, ", ")
		}
		remedy := "mount cgroup v2 at boot (mount -t cgroup2 cgroup2 /sys/fs/cgroup), and do not mount cgroup v1"
		if f.Init == initSystemd {
			remedy = "add systemd.unified_cgroup_hierarchy=1 to the kernel's command line and reboot"
		}
		return fail(id, "cgroup v1 is mounted"+held+"; cgroup v2 is required", remedy)
	case CgroupNone:
	}
	if f.Kernel.Config["CONFIG_CGROUPS"] == "n" {
		return fail(id, "the kernel has no cgroups", rebuild("CONFIG_CGROUPS", "CONFIG_MEMCG", "CONFIG_CGROUP_PIDS"))
	}
	return fail(id, "no cgroup file system is mounted at /sys/fs/cgroup", "mount it at boot: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
}

// memoryCause returns why there is no memory controller. known is false if the
// cause is a guess.
func memoryCause(f *Facts) (cause, remedy string, known bool) {
	line := f.Kernel.CommandLine
	off, on := lastSwitch(line, "cgroup_disable", "memory"), lastSwitch(line, "cgroup_enable", "memory")
	switch {
	case f.Kernel.Config["CONFIG_MEMCG"] == "n":
		return "the kernel was built without it (CONFIG_MEMCG)", rebuild("CONFIG_MEMCG"), true
	case off >= 0 && on > off:
		return "cgroup_disable=memory is on the kernel's command line, and this kernel ignores the cgroup_enable=memory after it",
			"remove cgroup_disable=memory from the command line or from the device tree's bootargs, or install another kernel", true
	case off >= 0 && (f.Board.RaspberryPi || f.BootCommandLine != ""):
		return "the Raspberry Pi firmware puts cgroup_disable=memory on the kernel's command line", raspberryRemedy(f), true
	case off >= 0:
		return "cgroup_disable=memory is on the kernel's command line",
			"remove cgroup_disable=memory from the kernel's command line, which the boot loader sets (on Debian /etc/default/grub or extlinux.conf, on U-Boot the variable bootargs), and reboot", true
	case slices.Contains(f.Cgroup.InV1, "memory"):
		return "it is mounted as cgroup v1", "unmount the cgroup v1 hierarchy of memory, or add cgroup_no_v1=all to the kernel's command line and reboot", true
	case f.Board.RaspberryPi && on < 0:
		return "Raspberry Pi kernels disable it unless the command line enables it", raspberryRemedy(f), true
	case slices.Contains(f.Cgroup.Disabled, "memory"):
		return "the kernel has it, and it is disabled", "add cgroup_enable=memory to the kernel's command line, remove cgroup_disable=memory from it, and reboot", true
	}
	return "the cause is unknown", rebuild("CONFIG_MEMCG") + "; make sure that its command line does not have cgroup_disable=memory", false
}

func raspberryRemedy(f *Facts) string {
	file := cmp.Or(f.BootCommandLine, "/boot/firmware/cmdline.txt or /boot/cmdline.txt (cmdline.txt on the first partition of the card)")
	return fmt.Sprintf("run 'tinylet kernel-args --write', or append %s to the only line of %s and remove cgroup_disable=memory from it if present; then reboot", strings.Join(RaspberryArguments(), " "), file)
}

func missingController(f *Facts, c *controller) Finding {
	what := fmt.Sprintf("the %s controller is missing: %s", c.v2, c.harm)
	remedy := rebuild(c.option)
	switch {
	case lastSwitch(f.Kernel.CommandLine, "cgroup_disable", c.v2) >= 0, lastSwitch(f.Kernel.CommandLine, "cgroup_disable", c.v1) >= 0:
		remedy = fmt.Sprintf("remove %s from cgroup_disable on the kernel's command line and reboot", c.v1)
	case slices.Contains(f.Cgroup.InV1, c.v2):
		remedy = fmt.Sprintf("unmount the cgroup v1 hierarchy of %s, or add cgroup_no_v1=all to the kernel's command line and reboot", c.v1)
	case f.Kernel.Config[c.option] == "y":
		remedy = "find what disables it: check /proc/cgroups and the kernel's command line"
	}
	return Finding{ID: "cgroup-" + c.v2, Level: c.need, What: what, Remedy: remedy}
}
