// Package config defines all settings: the kubelet's configuration document and
// flags, and tinylet's own document. It reads them in the kubelet's order of
// precedence (flags over drop-ins over the file over defaults) into one Config,
// and validates it.
//
// Fields, defaults, limits and precedence are those of Kubernetes v1.36:
// pkg/kubelet/apis/config/{v1beta1,validation} and cmd/kubelet/app. Differences:
//
//   - Without --config, the kubelet falls back to the former defaults of its
//     flags: anonymous requests, no authorization, read-only port 10255. Here the
//     defaults of the document apply in either case.
//   - An unknown field in a drop-in causes a warning.
//   - Relative paths in a drop-in are relative to its directory, as those in the
//     file are.
//   - Few feature gates have an effect. A gate that is set to a value without
//     effect causes a warning. So does a gate that Kubernetes v1.36 does not have,
//     for which the kubelet would not start. One configuration can therefore serve
//     nodes of several versions.
//   - Fields that are not honoured cause a warning when they have a value other
//     than the default and the one that is honoured (unsupportedSettings).
//     docs/reference/compatibility.md lists them.
//   - A containerLogMaxSize of 0 is an error: the kubelet would rotate every
//     log at each check.
package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// Config is the agent's configuration. It must not be changed after Load.
type Config struct {
	// Kubelet is the effective KubeletConfiguration. Every field that has a
	// default is set, pointers included.
	Kubelet kubelet.KubeletConfiguration
	// Tinylet is the effective TinyletConfiguration, every field set.
	Tinylet TinyletConfiguration

	// Kubeconfig is the path of the kubeconfig of the API server. It is empty
	// in standalone mode.
	Kubeconfig string
	// BootstrapKubeconfig is the path of the kubeconfig for TLS bootstrap, which
	// creates Kubeconfig if that does not exist.
	BootstrapKubeconfig string
	// NodeName is the node's name: --hostname-override or else the host's
	// name, in lower case.
	NodeName string
	// NodeIPs are the addresses of --node-ip: none, one, or one of each family.
	// An unspecified address (:: or 0.0.0.0) only prefers its family.
	NodeIPs []netip.Addr
	// NodeLabels are added when the node registers.
	NodeLabels map[string]string
	// CloudProvider is "" or "external".
	CloudProvider string

	// Paths are the paths of the agent's files.
	Paths Paths
}

// LogMaxBytes returns containerLogMaxSize in bytes: a container's log is rotated
// from this size on. A negative value means never. cfg must be valid.
func (cfg *Config) LogMaxBytes() int64 {
	q, err := resource.ParseQuantity(cfg.Kubelet.ContainerLogMaxSize)
	if err != nil {
		return -1
	}
	return q.Value()
}

// Paths are the absolute, clean paths of the agent's directories. The directories
// need not exist.
type Paths struct {
	Root          string // --root-dir
	Pods          string // one directory for each pod UID
	State         string // tinylet's own state, such as the journal
	PKI           string // --cert-dir
	PodLogs       string // podLogsDir
	ContainerLogs string // symlinks into PodLogs, for log collectors
}

// Journal returns the directory of the journal of the API server's pods.
func (p *Paths) Journal() string { return filepath.Join(p.State, "journal") }

// The kubelet's default paths (pkg/kubelet/config/defaults.go and
// cmd/kubelet/app/options/options.go).
const (
	DefaultRootDir       = "/var/lib/kubelet"
	DefaultPodLogsDir    = "/var/log/pods"
	defaultCertDir       = "/var/lib/kubelet/pki"
	defaultContainerLogs = "/var/log/containers"
)

// DefaultRuntimeEndpoint is the default of containerRuntimeEndpoint.
const DefaultRuntimeEndpoint = "unix:///run/containerd/containerd.sock"

// ListenPorts returns the configured TCP ports of the agent, sorted: that of the
// kubelet API, also if the agent does not serve it (standalone mode, or enableServer
// is false), and that of /healthz and the status page. cfg must be valid.
func (cfg *Config) ListenPorts() []uint16 {
	ports := []uint16{uint16(cfg.Kubelet.Port), uint16(*cfg.Kubelet.HealthzPort)}
	ports = slices.DeleteFunc(ports, func(port uint16) bool { return port == 0 })
	slices.Sort(ports)
	return slices.Compact(ports)
}

// PlainPodURL returns the problem and its remedy if staticPodURL is not encrypted, else "".
// Anyone on the path to that server can choose the node's pods, which may be privileged.
// A loopback address is safe.
func (cfg *Config) PlainPodURL() string {
	u, err := url.Parse(cfg.Kubelet.StaticPodURL)
	if err != nil || u.Scheme != "http" || loopback(u.Hostname()) {
		return ""
	}
	return "staticPodURL is http, so anyone on the path to " + u.Host + " can run pods on this node: use https"
}

// loopback reports whether a host is localhost or a loopback address. It does not resolve
// other names, because the result would not be authenticated.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// HealthzAddress returns the address of /healthz, or "" if it is disabled.
func (cfg *Config) HealthzAddress() string {
	port := *cfg.Kubelet.HealthzPort
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(cfg.Kubelet.HealthzBindAddress, strconv.Itoa(int(port)))
}

// MaxBackoff returns the limit of the crash loop backoff.
func (cfg *Config) MaxBackoff() time.Duration {
	return cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
}

// ExposedCredentials returns the problem and its remedy if other users have permissions
// on files with credentials, else "". It reads the files' modes on each call.
func (cfg *Config) ExposedCredentials() string {
	var problems []string
	// The agent uses these files even if other users may read them, as the kubelet does:
	// without them the node would lose its cluster. Files of tinylet's own settings are
	// rejected instead (secretfile).
	for _, path := range []string{
		cfg.Kubeconfig, cfg.BootstrapKubeconfig, cfg.Tinylet.EnrolKubeconfig, cfg.Kubelet.TLSPrivateKeyFile,
		filepath.Join(cfg.Paths.Root, "config.json"), filepath.Join(cfg.Paths.Root, ".dockercfg"),
	} {
		info, err := os.Stat(path) // fails for ""
		if err != nil || !info.Mode().IsRegular() || !secretfile.Exposed(info.Mode()) {
			continue
		}
		problems = append(problems, fmt.Sprintf("users other than its owner may use the credentials file %s: run chmod 600", path))
	}
	return strings.Join(problems, "; ")
}
