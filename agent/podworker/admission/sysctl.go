package admission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
)

// namespace is the kind of namespace that a sysctl belongs to; empty for one of
// the whole kernel.
type namespace string

const (
	namespaceIPC namespace = "IPC"
	namespaceNet namespace = "Net"
)

// safeSysctls affect only the pod that sets them, from the given kernel version
// on, in which the sysctl became namespaced (pkg/kubelet/sysctl of 1.36).
var safeSysctls = []struct {
	name         string
	major, minor int
}{
	{"kernel.shm_rmid_forced", 0, 0},
	{"net.ipv4.ip_local_port_range", 0, 0},
	{"net.ipv4.tcp_syncookies", 0, 0},
	{"net.ipv4.ping_group_range", 0, 0},
	{"net.ipv4.ip_unprivileged_port_start", 0, 0},
	{"net.ipv4.ip_local_reserved_ports", 3, 16},
	{"net.ipv4.tcp_keepalive_time", 4, 5},
	{"net.ipv4.tcp_fin_timeout", 4, 6},
	{"net.ipv4.tcp_keepalive_intvl", 4, 5},
	{"net.ipv4.tcp_keepalive_probes", 4, 5},
	{"net.ipv4.tcp_rmem", 4, 15},
	{"net.ipv4.tcp_wmem", 4, 15},
}

// ipcSysctls are the sysctls of IPC namespaces, and the prefixes kernel.shm and
// kernel.msg, which patterns may use.
var ipcSysctls = []string{
	"kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced", "kernel.shm",
	"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg",
}

// checkSysctls rejects sysctls that are neither safe nor allowed, and those of a
// namespace that the pod shares with the host.
func checkSysctls(p *v1.Pod, node *nodeinfo.Admission) *Rejection {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		if err := checkSysctl(pod.SysctlName(s.Name), p, node); err != nil {
			return &Rejection{Reason: ReasonSysctl, Message: "forbidden sysctl: " + err.Error()}
		}
	}
	return nil
}

func checkSysctl(name string, p *v1.Pod, node *nodeinfo.Admission) error {
	in, ok := allowedSysctl(name, node)
	switch {
	case !ok:
		return fmt.Errorf("%q not allowlisted", name)
	case in == namespaceIPC && p.Spec.HostIPC, in == namespaceNet && p.Spec.HostNetwork:
		return fmt.Errorf("%q not allowed with host %s enabled", name, in)
	}
	return nil
}

// allowedSysctl reports whether pods may set a sysctl, and returns its namespace.
func allowedSysctl(name string, node *nodeinfo.Admission) (in namespace, ok bool) {
	major, minor := kernelVersion(node.Kernel)
	for _, s := range safeSysctls {
		if s.name == name && (major > s.major || (major == s.major && minor >= s.minor)) {
			return namespaceOf(name), true
		}
	}
	for _, pattern := range node.AllowedUnsafeSysctls {
		prefix, _, isPattern := strings.Cut(pod.SysctlName(pattern), "*")
		if in := namespaceOf(prefix); in != "" && (prefix == name || (isPattern && strings.HasPrefix(name, prefix))) {
			return in, true
		}
	}
	return "", false
}

func namespaceOf(name string) namespace {
	switch {
	case strings.HasPrefix(name, "net."):
		return namespaceNet
	case strings.HasPrefix(name, "fs.mqueue."), slices.Contains(ipcSysctls, name):
		return namespaceIPC
	}
	return ""
}

// kernelVersion parses the first two numbers of a kernel release. It returns 0, 0
// if there are none.
func kernelVersion(release string) (major, minor int) {
	first, rest, _ := strings.Cut(release, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0
	}
	minor, err = strconv.Atoi(rest)
	if err != nil {
		return major, 0
	}
	return major, minor
}
