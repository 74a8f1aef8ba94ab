package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

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
var safeSysctls = map[string]*version.Version{
	"kernel.shm_rmid_forced":              anyVersion,
	"net.ipv4.ip_local_port_range":        anyVersion,
	"net.ipv4.tcp_syncookies":             anyVersion,
	"net.ipv4.ping_group_range":           anyVersion,
	"net.ipv4.ip_unprivileged_port_start": anyVersion,
	"net.ipv4.ip_local_reserved_ports":    version.MajorMinor(3, 16),
	"net.ipv4.tcp_keepalive_time":         version.MajorMinor(4, 5),
	"net.ipv4.tcp_fin_timeout":            version.MajorMinor(4, 6),
	"net.ipv4.tcp_keepalive_intvl":        version.MajorMinor(4, 5),
	"net.ipv4.tcp_keepalive_probes":       version.MajorMinor(4, 5),
	"net.ipv4.tcp_rmem":                   version.MajorMinor(4, 15),
	"net.ipv4.tcp_wmem":                   version.MajorMinor(4, 15),
}

var anyVersion = version.MajorMinor(0, 0)

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
	kernel, err := version.ParseGeneric(node.Kernel)
	if err != nil {
		kernel = anyVersion
	}
	if since, safe := safeSysctls[name]; safe && kernel.AtLeast(since) {
		return namespaceOf(name), true
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
