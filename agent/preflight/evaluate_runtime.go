package preflight

import (
	"cmp"
	"fmt"
	"strings"
)

// containerdNeeded is the oldest containerd that is worked with.
var containerdNeeded = [2]int{1, 7}

func judgeRuntime(f *Facts) []Finding {
	const id = "runtime"
	r := &f.Runtime
	at := "the container runtime at " + r.Endpoint
	switch r.Kind {
	case Answered:
	case NoSocket:
		return []Finding{fail(id, "there is no socket of a container runtime at "+r.Endpoint,
			"start containerd (its service, or /etc/init.d/S40containerd), or name its socket in containerRuntimeEndpoint")}
	case NotAllowed:
		return []Finding{fail(id, at+" lets only root in", "run tinylet check as root")}
	case NobodyListens:
		return []Finding{fail(id, at+" does not run: its socket was left behind", "start containerd, and look into its log for why it ended")}
	case Silent:
		return []Finding{fail(id, at+" takes connections but does not answer within 5 s",
			"look into containerd's log; a busy disk or missing memory can be the cause; restart it if it stays so (pods survive that)")}
	case Broken:
		return []Finding{fail(id, at+" answers with an error: "+r.Err,
			"see that containerd's CRI plugin is on: disabled_plugins in /etc/containerd/config.toml must not name cri")}
	}
	return append([]Finding{
		judgeRuntimeVersion(r),
		judgeCondition("runtime-ready", r.Ready, Fail, "the container runtime", "look into containerd's log"),
		// Only a warning: tinylet sets it up when it runs, or in a cluster a pod
		// on the host's network.
		judgeCondition("network-ready", r.NetworkReady, Warn, "the pods' network",
			f.Network.networkRemedy()),
		judgeCgroupDriver(f),
	}, judgeSandboxImage(&r.Sandbox)...)
}

// containerdVersion reads the branch of a version of containerd.
func containerdVersion(version string) (v [2]int, err error) {
	if n, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &v[0], &v[1]); err != nil || n != 2 {
		return v, fmt.Errorf("read the version %q of containerd", version)
	}
	return v, nil
}

func judgeRuntimeVersion(r *Runtime) Finding {
	const id = "runtime"
	if r.Name != "containerd" {
		return ok(id, "%s %s answers at %s", cmp.Or(r.Name, "a container runtime"), r.Version, r.Endpoint)
	}
	v, err := containerdVersion(r.Version)
	if err != nil {
		return warn(id, fmt.Sprintf("containerd's version %q cannot be read", r.Version), "use containerd 1.7 or later")
	}
	if v[0] < containerdNeeded[0] || v[0] == containerdNeeded[0] && v[1] < containerdNeeded[1] {
		return fail(id, "containerd "+r.Version+" is too old", "use containerd 1.7 or later")
	}
	return ok(id, "containerd %s answers at %s", r.Version, r.Endpoint)
}

func judgeCondition(id string, c *Condition, not Level, what, remedy string) Finding {
	switch {
	case c == nil:
		return warn(id, "the container runtime does not tell whether "+what+" is ready", remedy)
	case !c.True:
		why := strings.TrimSpace(c.Reason + ": " + c.Message)
		return Finding{ID: id, Level: not, What: what + " is not ready (" + strings.Trim(why, ": ") + ")", Remedy: remedy}
	}
	return ok(id, "%s is ready", what)
}

// How the runtime names the driver, and the kernel process 1.
const (
	driverSystemd = "systemd"
	initSystemd   = "systemd"
)

func judgeCgroupDriver(f *Facts) Finding {
	const id = "cgroup-driver"
	switch driver := f.Runtime.CgroupDriver; {
	case driver == driverSystemd && f.Init != "" && f.Init != initSystemd:
		return fail(id, "the container runtime leaves cgroups to systemd, which is not what runs this system (process 1 is "+f.Init+")",
			"set SystemdCgroup = false for the runtime in /etc/containerd/config.toml and restart containerd")
	case f.Runtime.Systemd != "":
		return fail(id, "the container runtime leaves cgroups to systemd, and pods cannot have theirs: "+f.Runtime.Systemd,
			"see that dbus.service runs and that `systemctl list-jobs` answers; run tinylet check as root")
	case f.Runtime.SystemBus != "":
		return warn(id, "the container runtime leaves cgroups to systemd, which does not answer on the system bus: with crun no container starts: "+f.Runtime.SystemBus,
			"see that dbus.socket and dbus.service run")
	case driver == "":
		return ok(id, "the container runtime does not tell its cgroup driver; the configuration's holds")
	default:
		return ok(id, "the container runtime's cgroup driver is %s", driver)
	}
}
