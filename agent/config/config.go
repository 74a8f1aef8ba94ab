// Package config owns everything that a user can set: the kubelet's
// configuration document and flags, and tinylet's own document. It reads
// them in the kubelet's order of precedence (flags over drop-ins over the
// file over defaults) into one Config, and checks it.
//
// The facts (fields, defaults, limits, precedence) are those of Kubernetes
// v1.36: pkg/kubelet/apis/config/{v1beta1,validation} and
// cmd/kubelet/app. What differs:
//
//   - Without --config, the kubelet falls back to the defaults of its flags
//     of old: anonymous requests, no authorization, read-only port 10255.
//     Here the file's defaults hold in either case.
//   - An unknown field in a drop-in gives a warning.
//   - Relative paths in a drop-in start at its folder, as those in the file
//     do.
//   - Few feature gates switch anything. One that is set to what does not
//     happen here gives a warning, as does a name that Kubernetes v1.36 does
//     not know, where the kubelet would not start, so that one configuration
//     serves nodes of several versions.
//   - Fields that are not honoured give a warning when they are set
//     (Differences); docs/reference/compatibility.md lists them.
//   - A containerLogMaxSize of 0 is an error: the kubelet would rotate every
//     log every time it looks.
package config

import (
	"net/netip"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Config is what the agent is given. Nothing changes it after Load.
type Config struct {
	// Kubelet is the effective KubeletConfiguration. Every field that has a
	// default is set, pointers included.
	Kubelet kubelet.KubeletConfiguration
	// Tinylet is the effective TinyletConfiguration, every field set.
	Tinylet TinyletConfiguration

	// Kubeconfig says how to reach the API server; "" is standalone mode.
	Kubeconfig string
	// BootstrapKubeconfig is used to get Kubeconfig where that is absent.
	BootstrapKubeconfig string
	// NodeName is the node's name: --hostname-override or else the host's
	// name, in lower case.
	NodeName string
	// NodeIPs are from --node-ip: none, one, or one of each family. An
	// unspecified address (:: or 0.0.0.0) only prefers its family.
	NodeIPs []netip.Addr
	// NodeLabels are added when the node registers.
	NodeLabels map[string]string
	// CloudProvider is "" or external.
	CloudProvider string

	// Paths are where the agent keeps its files.
	Paths Paths
}

// LogMaxBytes is containerLogMaxSize: the size in bytes from which a
// container's log is rotated, or a negative number, for never. cfg must be
// valid.
func (cfg *Config) LogMaxBytes() int64 {
	q, err := resource.ParseQuantity(cfg.Kubelet.ContainerLogMaxSize)
	if err != nil {
		return -1
	}
	return q.Value()
}

// Paths are absolute, cleaned and derived once. The folders need not exist.
type Paths struct {
	Root            string // --root-dir
	Pods            string // one folder for each pod UID
	Plugins         string
	PluginsRegistry string
	DevicePlugins   string
	PodResources    string
	Checkpoints     string
	Seccomp         string // profiles of type Localhost
	State           string // tinylet's own journal and facts
	PKI             string // --cert-dir
	PodLogs         string // podLogsDir
	ContainerLogs   string // links into PodLogs, for log collectors
}

// The kubelet's places (pkg/kubelet/config/defaults.go and
// cmd/kubelet/app/options/options.go).
const (
	defaultRootDir       = "/var/lib/kubelet"
	defaultCertDir       = "/var/lib/kubelet/pki"
	defaultContainerLogs = "/var/log/containers"
)

func pathsOf(rootDir, certDir, podLogsDir string) Paths {
	under := func(name string) string { return filepath.Join(rootDir, name) }
	return Paths{
		Root:            rootDir,
		Pods:            under("pods"),
		Plugins:         under("plugins"),
		PluginsRegistry: under("plugins_registry"),
		DevicePlugins:   under("device-plugins"),
		PodResources:    under("pod-resources"),
		Checkpoints:     under("checkpoints"),
		Seccomp:         under("seccomp"),
		State:           under("tinylet"),
		PKI:             certDir,
		PodLogs:         podLogsDir,
		ContainerLogs:   defaultContainerLogs,
	}
}
