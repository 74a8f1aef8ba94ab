package preflight

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tinylet/tinylet/agent/config"
)

// minContainerd is the oldest supported release of containerd.
var minContainerd = releaseNumber{1, 7}

func checkRuntime(f *Facts) []Finding {
	const id = "runtime"
	r := &f.Runtime
	at := "the container runtime at " + r.Endpoint
	switch r.Kind {
	case Answered:
	case NoSocket:
		return []Finding{fail(id, "there is no container runtime socket at "+r.Endpoint,
			"start containerd (its service, or /etc/init.d/S40containerd), or set containerRuntimeEndpoint to its socket")}
	case NotAllowed:
		return []Finding{fail(id, at+" allows only root", "run tinylet check as root")}
	case StaleSocket:
		return []Finding{fail(id, at+" is not running: its socket is stale", "start containerd, and check its log for why it ended")}
	case NoResponse:
		return []Finding{fail(id, at+" accepts connections but does not answer within 5 s",
			"check containerd's log; a busy disk or lack of memory can be the cause; restart it if that persists (pods survive that)")}
	case BadAddress:
		return []Finding{fail(id, "cannot connect to "+at+": "+r.Err, "set containerRuntimeEndpoint to its socket, such as "+config.DefaultRuntimeEndpoint)}
	case Broken:
		return []Finding{fail(id, at+" answers with an error: "+r.Err,
			"make sure that containerd's CRI plugin is enabled: disabled_plugins in /etc/containerd/config.toml must not name cri")}
	}
	return append([]Finding{
		checkRuntimeVersion(r),
		checkCondition("runtime-ready", r.Ready, Fail, "the container runtime", "check containerd's log"),
		// Only a warning: tinylet, or in a cluster a pod with hostNetwork, sets the
		// network up later.
		checkCondition("network-ready", r.NetworkReady, Warn, "the pod network",
			f.Network.networkRemedy()),
		checkCgroupDriver(f),
	}, checkSandboxImage(&r.Sandbox)...)
}

func checkRuntimeVersion(r *Runtime) Finding {
	const id = "runtime"
	if r.Name != "containerd" {
		return ok(id, "%s %s answers at %s", cmp.Or(r.Name, "a container runtime"), r.Version, r.Endpoint)
	}
	v, parsed := parseRelease(r.Version)
	if !parsed {
		return warn(id, fmt.Sprintf("containerd reports the version %q, which has no number: it was built without one", r.Version),
			"make sure that it is containerd 1.7 or later; a build sets the version with -X github.com/containerd/containerd/v2/version.Version=VERSION")
	}
	if v.number.compare(minContainerd) < 0 {
		return fail(id, "containerd "+r.Version+" is too old", "use containerd 1.7 or later")
	}
	return ok(id, "containerd %s answers at %s", r.Version, r.Endpoint)
}

func checkCondition(id string, c *Condition, not Level, what, remedy string) Finding {
	switch {
	case c == nil:
		return warn(id, "the container runtime does not report whether "+what+" is ready", remedy)
	case !c.True:
		why := strings.TrimSpace(c.Reason + ": " + c.Message)
		return Finding{ID: id, Level: not, What: what + " is not ready (" + strings.Trim(why, ": ") + ")", Remedy: remedy}
	}
	return ok(id, "%s is ready", what)
}

// Names of the runtime's cgroup driver and of process 1.
const (
	driverSystemd = "systemd"
	initSystemd   = "systemd"
)

func checkCgroupDriver(f *Facts) Finding {
	const id = "cgroup-driver"
	switch driver := f.Runtime.CgroupDriver; {
	case driver == driverSystemd && f.Init != "" && f.Init != initSystemd:
		return fail(id, "the container runtime's cgroup driver is systemd, which does not run this system (process 1 is "+f.Init+")",
			"set SystemdCgroup = false for the runtime in /etc/containerd/config.toml and restart containerd")
	case f.Runtime.Systemd != "":
		return fail(id, "the container runtime's cgroup driver is systemd, and pods cannot have cgroups: "+f.Runtime.Systemd,
			"make sure that dbus.service runs and that `systemctl list-jobs` works; run tinylet check as root")
	case f.Runtime.SystemBus != "":
		return warn(id, "the container runtime's cgroup driver is systemd, which does not answer on the system bus: with crun no container starts: "+f.Runtime.SystemBus,
			"make sure that dbus.socket and dbus.service run")
	case driver == "":
		return ok(id, "the container runtime does not report its cgroup driver; the configured one is used")
	default:
		return ok(id, "the container runtime's cgroup driver is %s", driver)
	}
}

// checkSandboxImage checks the sandbox image. Each pod needs it, and a board may
// have no registry to pull it from when its first pod starts.
func checkSandboxImage(s *SandboxImage) []Finding {
	const id = "sandbox-image"
	switch {
	case s.Name == "" || s.Present == Unknown:
		return nil
	case s.Present == No:
		return []Finding{warn(id, "the sandbox image "+s.Name+" is not present: the container runtime pulls it for the first pod, which fails without a registry",
			"put an archive with an image of this name into imagesFolder, or pull it now (crictl pull "+s.Name+"), or configure one that is present: pinned_images.sandbox in /etc/containerd/config.toml, sandbox_image before containerd 2.0")}
	case s.Pinned == No:
		return []Finding{warn(id, "the sandbox image "+s.Name+" is not pinned: image garbage collection may remove it",
			"configure exactly this name in /etc/containerd/config.toml (pinned_images.sandbox, sandbox_image before containerd 2.0) and restart containerd")}
	}
	return []Finding{ok(id, "the sandbox image %s is present and pinned", s.Name)}
}
