package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
)

// PluginNetwork connects sandboxes with the CNI plugins of a foreign configuration list, as
// containerd's CRI plugin does with max_conf_num = 1 and use_internal_loopback = true. The
// configuration is read for each call.
//
// It uses the specification's own libcni. github.com/containerd/go-cni on top of that is for
// several networks of a pod, and asks plugins for their status without a limit of time.
type PluginNetwork struct {
	// ConfDir is the directory of the configuration, such as /etc/cni/net.d. The first file
	// by name is used.
	ConfDir string
	// PluginDirs are the directories of the plugins, such as /opt/cni/bin.
	PluginDirs []string
	// CacheDir is the directory on the disk for the results of plugins, which they get again
	// when a pod is disconnected. libcni's default is /var/lib/cni.
	CacheDir string
}

const (
	// pluginStatusTimeout bounds the verb STATUS of all plugins.
	pluginStatusTimeout = 10 * time.Second
	// maxPluginOutput bounds what a plugin writes, in bytes.
	maxPluginOutput = 1 << 20
	// maxConflist bounds a configuration file, in bytes.
	maxConflist = 1 << 20
)

// load reads the configuration.
func (n *PluginNetwork) load() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(n.ConfDir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, fmt.Errorf("list CNI configurations: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no CNI configuration in %q; install a network plugin", n.ConfDir)
	}
	file := slices.Min(files)
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("read CNI configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxConflist {
		return nil, fmt.Errorf("read CNI configuration %q: it is not a regular file of at most %d bytes", file, maxConflist)
	}
	list, err := readConf(file)
	if err != nil {
		return nil, fmt.Errorf("read CNI configuration %q: %w", file, err)
	}
	if len(list.Plugins) == 0 {
		return nil, fmt.Errorf("read CNI configuration %q: it has no plugins", file)
	}
	return list, nil
}

// readConf reads a configuration list, or the configuration of one plugin, which containerd
// takes too.
func readConf(file string) (*libcni.NetworkConfigList, error) {
	if strings.HasSuffix(file, ".conflist") {
		return libcni.NetworkConfFromFile(file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	conf, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	list, err := json.Marshal(map[string]any{"name": conf.Network.Name, "cniVersion": conf.Network.CNIVersion, "plugins": []json.RawMessage{data}})
	if err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(list)
}

func (n *PluginNetwork) cni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(n.PluginDirs, n.CacheDir, new(pluginExec))
}

// Setup implements Network.
func (n *PluginNetwork) Setup(ctx context.Context, sandboxID, path string, c *runtimeapi.PodSandboxConfig) (ips []string, err error) {
	list, err := n.load()
	if err != nil {
		return nil, err
	}
	rt, err := pluginArguments(sandboxID, path, c)
	if err != nil {
		return nil, fmt.Errorf("set up network of sandbox %q: %w", sandboxID, err)
	}
	if err := bringUpLoopback(path); err != nil {
		return nil, fmt.Errorf("set up network of sandbox %q: %w", sandboxID, err)
	}
	result, err := n.cni().AddNetworkList(ctx, list, rt)
	if err != nil {
		return nil, fmt.Errorf("set up network %q of sandbox %q: %w", list.Name, sandboxID, errors.Join(err, context.Cause(ctx)))
	}
	if ips, err = addressesOf(result); err != nil {
		return nil, fmt.Errorf("set up network %q of sandbox %q: %w", list.Name, sandboxID, err)
	}
	return ips, nil
}

// Teardown implements Network.
func (n *PluginNetwork) Teardown(ctx context.Context, sandboxID, path string, c *runtimeapi.PodSandboxConfig) error {
	list, err := n.load()
	if err != nil {
		return err
	}
	rt, err := pluginArguments(sandboxID, path, c)
	if err != nil {
		return fmt.Errorf("tear down network of sandbox %q: %w", sandboxID, err)
	}
	err = n.cni().DelNetworkList(ctx, list, rt)
	// Plugins are free to fail without a namespace, and some do for what they have already
	// removed (Remove in github.com/containerd/go-cni, cni.go).
	if err == nil || path == "" && strings.Contains(err.Error(), "no such file or directory") || strings.Contains(err.Error(), "not found") {
		return nil
	}
	return fmt.Errorf("tear down network %q of sandbox %q: %w", list.Name, sandboxID, errors.Join(err, context.Cause(ctx)))
}

// Problem implements Network.
func (n *PluginNetwork) Problem(ctx context.Context) error {
	list, err := n.load()
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, pluginStatusTimeout)
	defer cancel()
	if err := n.cni().GetStatusNetworkList(limited, list); err != nil {
		return fmt.Errorf("network %q is not ready: %w", list.Name, errors.Join(err, context.Cause(limited)))
	}
	return nil
}

// pluginArguments returns what plugins get of a sandbox (cniNamespaceOpts in containerd's
// internal/cri/server/sandbox_run.go).
func pluginArguments(sandboxID, path string, c *runtimeapi.PodSandboxConfig) (*libcni.RuntimeConf, error) {
	meta := c.GetMetadata()
	rt := &libcni.RuntimeConf{
		ContainerID: sandboxID, NetNS: path, IfName: podInterface,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", meta.GetNamespace()},
			{"K8S_POD_NAME", meta.GetName()},
			{"K8S_POD_INFRA_CONTAINER_ID", sandboxID},
			{"K8S_POD_UID", meta.GetUid()},
		},
		CapabilityArgs: map[string]any{"io.kubernetes.cri.pod-annotations": c.GetAnnotations()},
	}
	var ports []pluginPort
	for _, m := range c.GetPortMappings() {
		if m.GetHostPort() > 0 {
			ports = append(ports, pluginPort{m.GetHostPort(), m.GetContainerPort(), strings.ToLower(m.GetProtocol().String()), m.GetHostIp()})
		}
	}
	if len(ports) > 0 {
		rt.CapabilityArgs["portMappings"] = ports
	}
	ingress, err := bandwidth(c.GetAnnotations(), annotationIngress)
	if err != nil {
		return nil, err
	}
	egress, err := bandwidth(c.GetAnnotations(), annotationEgress)
	if err != nil {
		return nil, err
	}
	if limits := (pluginBandwidth{}).with(ingress, egress); limits != (pluginBandwidth{}) {
		rt.CapabilityArgs["bandwidth"] = limits
	}
	if d := c.GetDnsConfig(); d != nil {
		rt.CapabilityArgs["dns"] = types.DNS{Nameservers: d.GetServers(), Search: d.GetSearches(), Options: d.GetOptions()}
	}
	if parent := c.GetLinux().GetCgroupParent(); parent != "" {
		rt.CapabilityArgs["cgroupPath"] = parent
	}
	return rt, nil
}

// pluginPort is a port in the capability portMappings (CONVENTIONS.md).
type pluginPort struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// pluginBandwidth is the capability bandwidth (CONVENTIONS.md): bits per second, and bits.
type pluginBandwidth struct {
	IngressRate  uint64 `json:"ingressRate"`
	IngressBurst uint64 `json:"ingressBurst"`
	EgressRate   uint64 `json:"egressRate"`
	EgressBurst  uint64 `json:"egressBurst"`
}

// with returns the limits with the largest burst, as containerd has it.
func (b pluginBandwidth) with(ingress, egress link.Rate) pluginBandwidth {
	if ingress.BitsPerSecond > 0 {
		b.IngressRate, b.IngressBurst = ingress.BitsPerSecond, math.MaxUint32
	}
	if egress.BitsPerSecond > 0 {
		b.EgressRate, b.EgressBurst = egress.BitsPerSecond, math.MaxUint32
	}
	return b
}

// addressesOf returns the addresses of the pod's interface. An address without an interface is
// of that.
func addressesOf(result types.Result) ([]string, error) {
	r, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("read result of plugins: %w", err)
	}
	var all []netip.Prefix
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil {
			if *i < 0 || *i >= len(r.Interfaces) {
				return nil, fmt.Errorf("address %s in the result of plugins has the interface %d of %d", ip.Address.String(), *i, len(r.Interfaces))
			}
			if r.Interfaces[*i].Name != podInterface {
				continue
			}
		}
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, fmt.Errorf("the result of plugins has the address %q", ip.Address.String())
		}
		ones, _ := ip.Address.Mask.Size()
		all = append(all, netip.PrefixFrom(addr.Unmap(), ones))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the result of plugins has no address of %s", podInterface)
	}
	var out []string
	for _, p := range ipv4First(all) {
		out = append(out, p.Addr().String())
	}
	return out, nil
}

// bringUpLoopback brings up the loopback interface of a network namespace.
func bringUpLoopback(path string) (err error) {
	ns, err := netns.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	h, err := link.OpenIn(ns)
	if err != nil {
		return err
	}
	return errors.Join(h.BringUpLoopback(), h.Close())
}

// pluginExec runs plugins. Unlike libcni's it bounds what they write, and does not wait for
// their children, which may hold their output open.
type pluginExec struct{ version.PluginDecoder }

// pluginDelay is how long the output of a plugin that has ended may be held open.
const pluginDelay = time.Second

// ExecPlugin implements invoke.Exec.
func (*pluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout pluginOutput
	stderr := limited{most: 4 << 10}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = environ, bytes.NewReader(stdin), &stdout, &stderr, pluginDelay
	err := cmd.Run()
	switch {
	case stdout.full:
		return nil, fmt.Errorf("plugin %q wrote more than %d bytes", path, maxPluginOutput)
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return stdout.data, nil
	}
	failed := new(types.Error)
	if json.Unmarshal(stdout.data, failed) == nil && failed.Msg != "" {
		return nil, failed
	}
	return nil, fmt.Errorf("run plugin %q: %w: %s", path, err, strings.TrimSpace(string(stdout.data)+"\n"+stderr.String()))
}

// FindInPath implements invoke.Exec.
func (*pluginExec) FindInPath(plugin string, paths []string) (string, error) {
	if plugin == "" || strings.ContainsRune(plugin, os.PathSeparator) {
		return "", fmt.Errorf("CNI plugin %q has no valid name", plugin)
	}
	for _, dir := range paths {
		path := dir + string(os.PathSeparator) + plugin
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("CNI plugin %q is not in %s; install it", plugin, strings.Join(paths, ", "))
}

// pluginOutput is what a plugin writes. Too much is an error, which ends the plugin with
// SIGPIPE.
type pluginOutput struct {
	data []byte
	full bool
}

// Write implements io.Writer.
func (o *pluginOutput) Write(p []byte) (int, error) {
	if o.full = len(o.data)+len(p) > maxPluginOutput; o.full {
		return 0, io.ErrShortWrite
	}
	o.data = append(o.data, p...)
	return len(p), nil
}
