//go:build board

package standalone

import (
	"slices"
	"strings"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
)

// securityScene is what security contexts make of a process.
func securityScene() scene {
	return scene{
		name: "security",
		pods: map[string]string{
			"plain": plainPod, "limited": limitedPod, "nonroot": nonRootPod, "strict": strictPod, "merge": mergePod,
			"sysctl": sysctlPod, "sysctlbad": sysctlBadPod, "hostns": hostNamespacesPod, "share": sharePod,
			"userns": userNamespacePod, "apparmor": appArmorPod,
		},
		checks: []check{
			{"without a security context", plainContext},
			{"user, groups, capabilities, read-only root, seccomp", limitedContext},
			{"fsGroup", fsGroup},
			{"privileged", privileged},
			{"a local seccomp profile", localSeccomp},
			{"runAsNonRoot", nonRoot},
			{"policy of supplementary groups", groupsPolicy},
			{"sysctls", sysctls},
			{"the host's namespaces", hostNamespaces},
			{"a shared PID namespace", sharedProcesses},
			{"a user namespace and an unmasked /proc", userNamespace},
			{"AppArmor", appArmor},
		},
	}
}

const plainPod = `
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: program, command: [/program, report]}
  - {name: privileged, image: program, command: [/program, report], securityContext: {privileged: true}}
  - {name: seccomp, image: program, command: [/program, report], securityContext: {seccompProfile: {type: RuntimeDefault}}}
  - {name: local, image: busybox, command: [sh, -c, "mkdir /made; ls -d /made; true"], securityContext: {seccompProfile: {type: Localhost, localhostProfile: profiles/no-mkdir.json}}}
`

func plainContext(n node) {
	p := n.pod("plain")
	r := p.report("c")
	p.same("user and group", [2]int{0, 0}, [2]int{r.UID, r.GID})
	p.same("capabilities", "00000000a80425fb", r.CapEffective)
	p.same("no_new_privs", false, r.NoNewPrivs)
	p.same("seccomp", 0, r.Seccomp)
	p.same("root is writable", true, r.At("/").Has("rw"))
	p.same("/proc/kcore is masked", true, r.At("/proc/kcore").Point != "")
	p.same("/proc/sys is read-only", true, r.At("/proc/sys").Has("ro"))
	p.same("/sys is read-only", true, r.At("/sys").Has("ro"))
	p.same("best effort: oom_score_adj", 1000, r.OOMScore)
	p.same("seccomp of RuntimeDefault", 2, p.report("seccomp").Seccomp)
}

func privileged(n node) {
	p := n.pod("plain")
	r, other := p.report("privileged"), p.report("c")
	all := n.sh("sed -n 's/^CapBnd:[[:space:]]*//p' /proc/1/status")
	p.same("capabilities", all, r.CapEffective)
	p.same("/proc/kcore is masked", false, r.At("/proc/kcore").Point != "")
	p.same("/sys is writable", true, r.At("/sys").Has("rw"))
	p.holds("it has the host's devices", r.Devices > other.Devices+10, [2]int{r.Devices, other.Devices})
}

func localSeccomp(n node) {
	p := n.pod("plain")
	said := p.logged("local", "/made")
	p.holds("mkdir is not permitted", strings.Contains(said, "not permitted"), said)
}

const limitedPod = `
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  restartPolicy: Never
  volumes: [{name: v, emptyDir: {}}, {name: cm, configMap: {name: settings, defaultMode: 0440}}]
  securityContext: {runAsUser: 1000, runAsGroup: 2000, supplementalGroups: [3000], fsGroup: 4000, fsGroupChangePolicy: Always, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: c
    image: program
    command: [/program, report]
    volumeMounts: [{name: v, mountPath: /v}]
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      runAsNonRoot: true
      capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}
  - {name: own, image: program, command: [/program, report], securityContext: {runAsUser: 1001, runAsGroup: 2001, seccompProfile: {type: Unconfined}}}
  - {name: stat, image: program, command: [/program, file, stat, /v, /cm/color], volumeMounts: [{name: v, mountPath: /v}, {name: cm, mountPath: /cm}]}
  - {name: write, image: program, command: [/program, file, write, /v/made, text], volumeMounts: [{name: v, mountPath: /v}]}
`

func limitedContext(n node) {
	p := n.pod("limited")
	r := p.report("c")
	p.same("user and group", [2]int{1000, 2000}, [2]int{r.UID, r.GID})
	p.holds("groups have 3000 and 4000", slices.Contains(r.Groups, 3000) && slices.Contains(r.Groups, 4000), r.Groups)
	p.same("bounding capabilities", "0000000000000400", r.CapBounding)
	p.same("effective capabilities of a user", "0000000000000000", r.CapEffective)
	p.same("no_new_privs", true, r.NoNewPrivs)
	p.same("seccomp", 2, r.Seccomp)
	p.same("root is read-only", true, r.At("/").Has("ro"))
	own := p.report("own")
	p.same("the container's own user, group and seccomp win", [3]int{1001, 2001, 0}, [3]int{own.UID, own.GID, own.Seccomp})
}

func fsGroup(n node) {
	p := n.pod("limited")
	files := p.stats("stat")
	p.same("an emptyDir's mode", "2777", files["/v"].Mode)
	p.same("an emptyDir's group", 4000, files["/v"].GID)
	p.same("a configMap's file can be read", "blue", files["/cm/color"].Content)
	p.logged("write", "written /v/made")
}

const nonRootPod = `
apiVersion: v1
kind: Pod
metadata: {name: nonroot}
spec:
  securityContext: {runAsNonRoot: true}
  containers: [{name: c, image: program, command: [/program, report]}]
`

func nonRoot(n node) {
	p := n.pod("nonroot")
	d := p.status("CreateContainerConfigError")
	p.holds("the message tells of root", strings.Contains(find(d, "c").Message, "root"), find(d, "c").Message)
}

const strictPod = `
apiVersion: v1
kind: Pod
metadata: {name: strict}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 1000, runAsGroup: 1000, supplementalGroups: [60000], supplementalGroupsPolicy: Strict}
  containers: [{name: c, image: program, command: [/program, report]}]
`

const mergePod = `
apiVersion: v1
kind: Pod
metadata: {name: merge}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 1000, runAsGroup: 1000, supplementalGroups: [60000], supplementalGroupsPolicy: Merge}
  containers: [{name: c, image: program, command: [/program, report]}]
`

// groupsPolicy: the image's /etc/group has user 1000 in group 50000.
func groupsPolicy(n node) {
	p := n.pod("merge")
	r := p.report("c")
	p.holds("Merge takes the image's groups", slices.Contains(r.Groups, 50000) && slices.Contains(r.Groups, 60000), r.Groups)
	p = n.pod("strict")
	r = p.report("c")
	p.holds("Strict does not", !slices.Contains(r.Groups, 50000) && slices.Contains(r.Groups, 60000), r.Groups)
}

const sysctlPod = `
apiVersion: v1
kind: Pod
metadata: {name: sysctl}
spec:
  restartPolicy: Never
  securityContext:
    sysctls:
    - {name: kernel.shm_rmid_forced, value: "1"}
    - {name: net/ipv4/tcp_syncookies, value: "0"}
    - {name: kernel.msgmax, value: "65536"}
  containers: [{name: c, image: program, command: [/program, report, -sysctl, kernel.shm_rmid_forced, -sysctl, net.ipv4.tcp_syncookies, -sysctl, kernel.msgmax]}]
`

const sysctlBadPod = `
apiVersion: v1
kind: Pod
metadata: {name: sysctlbad}
spec:
  securityContext: {sysctls: [{name: kernel.shmmax, value: "65536"}]}
  containers: [{name: c, image: program, command: [/program, report]}]
`

func sysctls(n node) {
	p := n.pod("sysctl")
	p.same("safe ones and one that is allowed", map[string]string{
		"kernel.shm_rmid_forced": "1", "net.ipv4.tcp_syncookies": "0", "kernel.msgmax": "65536",
	}, p.report("c").Sysctls)
	n.pod("sysctlbad").rejected("SysctlForbidden")
}

const hostNamespacesPod = `
apiVersion: v1
kind: Pod
metadata: {name: hostns}
spec:
  restartPolicy: Never
  hostNetwork: true
  hostPID: true
  hostIPC: true
  containers: [{name: c, image: program, command: [/program, report]}]
`

func hostNamespaces(n node) {
	p := n.pod("hostns")
	r, plain := p.report("c"), n.pod("plain").report("c")
	for _, ns := range []string{"net", "pid", "ipc"} {
		host := n.sh("readlink /proc/1/ns/%s", ns)
		p.same("namespace "+ns, host, r.Namespaces[ns])
		p.holds("a plain pod has its own "+ns, plain.Namespaces[ns] != host, host)
	}
	p.same("hostname", "board", r.Hostname)
	p.holds("it sees containerd", slices.ContainsFunc(r.Processes, func(c string) bool {
		return strings.HasPrefix(c, "/usr/bin/containerd ") || strings.HasPrefix(c, "containerd ")
	}), len(r.Processes))
}

const sharePod = `
apiVersion: v1
kind: Pod
metadata: {name: share}
spec:
  terminationGracePeriodSeconds: 1
  shareProcessNamespace: true
  containers:
  - {name: other, image: program, command: [/program, trap, -name, neighbour]}
  - {name: c, image: program, command: [/program, report, -linger]}
`

func sharedProcesses(n node) {
	p := n.pod("share")
	r := p.report("c")
	p.same("process 1", "/pause", r.PID1)
	p.holds("it sees its neighbour", slices.ContainsFunc(r.Processes, func(c string) bool { return strings.Contains(c, "neighbour") }), r.Processes)
	p.same("a plain pod's container is process 1", 1, n.pod("plain").report("c").PID)
}

const userNamespacePod = `
apiVersion: v1
kind: Pod
metadata: {name: userns}
spec:
  restartPolicy: Never
  hostUsers: false
  volumes: [{name: v, emptyDir: {}}, {name: cm, configMap: {name: settings}}]
  containers:
  - {name: c, image: program, command: [/program, report], securityContext: {procMount: Unmasked}, volumeMounts: [{name: v, mountPath: /v}]}
  - {name: write, image: program, command: [/program, file, write, /v/made, text], volumeMounts: [{name: v, mountPath: /v}]}
  - {name: stat, image: program, command: [/program, file, stat, /v, /cm/color], volumeMounts: [{name: v, mountPath: /v}, {name: cm, mountPath: /cm}]}
`

func userNamespace(n node) {
	p := n.pod("userns")
	r := p.report("c")
	ids := strings.Fields(r.UIDMap)
	p.holds("root is mapped to a range of 65536 users of its own", len(ids) == 3 && ids[0] == "0" && ids[1] != "0" && ids[2] == "65536", r.UIDMap)
	p.same("groups are mapped alike", r.UIDMap, r.GIDMap)
	p.same("root inside", 0, r.UID)
	p.same("/proc/kcore is masked", false, r.At("/proc/kcore").Point != "")
	p.logged("write", "written /v/made")
	files := p.stats("stat")
	p.same("a volume's owner is root inside", 0, files["/v"].UID)
	p.same("a configMap can be read", "blue", files["/cm/color"].Content)
}

const appArmorPod = `
apiVersion: v1
kind: Pod
metadata: {name: apparmor}
spec:
  restartPolicy: Never
  containers: [{name: c, image: program, command: [/program, report], securityContext: {appArmorProfile: {type: Localhost, localhostProfile: none-of-that-name}}}]
`

// appArmor: a kernel without AppArmor cannot enforce a profile, one with it
// does not have this one.
func appArmor(n node) {
	p := n.pod("apparmor")
	if n.sh("cat /sys/module/apparmor/parameters/enabled 2>/dev/null; true") != "Y" {
		p.rejected("AppArmor")
		return
	}
	p.until("it does not run", func(d *cli.DescriptionDocument) string {
		if c := find(d, "c"); d.Object.Status.Reason != "AppArmor" && c.Reason != "CreateContainerError" && c.Reason != "RunContainerError" && c.Reason != "StartError" {
			return c.State + " " + c.Reason
		}
		return ""
	})
}
