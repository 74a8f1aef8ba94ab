package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/net/cni"
)

func (s *system) net() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net [flags]",
		Short: "Show the pod network, and the addresses and ports of the pods",
		Long: "Show the configuration of the pod network and, for each pod, its addresses, its\n" +
			"interface on the host, and its host ports as HOST->POD. Pods with hostNetwork are\n" +
			"not listed.\n\n" +
			"No agent is needed: the command reads the network configuration of the container\n" +
			"runtime, the leases of tinylet's CNI plugin, and the kernel. It marks an interface\n" +
			"or port of a lease with ! if the kernel does not have it. It must run as root.",
		Example: `  # Show the pod network and the addresses of the pods.
  tinylet net

  # Print the pod that has host port 8080.
  tinylet net -o json | jq -r '.pods[] | select(any(.ports[]?; .host == 8080)) | .pod'`,
		Args: cobra.NoArgs,
	}
	form := addOutput(cmd)
	dir := cmd.Flags().String("config-folder", "", "`directory` of the runtime's network configurations (default from the agent's configuration, or else from the runtime)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.uid() != 0 {
			return errors.New("show pod network: not permitted; run this command as root or with sudo")
		}
		doc, err := readNet(cmp.Or(*dir, s.networkDir(cmd.Context())), filepath.Join(s.root, cni.DefaultStateDir))
		if err != nil {
			return err
		}
		return form.print(cmd.OutOrStdout(), doc, func(w io.Writer) error { return s.printNet(w, &doc) })
	}
	return command(cmd)
}

// networkDir returns the directory of the runtime's network configurations: of the
// agent's configuration, or else as the runtime reports it, or else the default.
func (s *system) networkDir(ctx context.Context) string {
	var settings config.Network
	endpoint := config.DefaultRuntimeEndpoint
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	cfg, _, err := s.load(set, config.NewFlags(set))
	if err == nil {
		settings, endpoint = cfg.Tinylet.Network, cmp.Or(cfg.Kubelet.ContainerRuntimeEndpoint, endpoint)
	}
	var info container.Info
	if settings.ConfigFolder == "" && s.root == "/" {
		info = runtimeInfo(ctx, endpoint)
	}
	configs, _ := info.NetworkDirectories(&settings)
	return filepath.Join(s.root, configs)
}

// runtimeInfoTimeout is the timeout of the request for the runtime's configuration.
const runtimeInfoTimeout = 2 * time.Second

// runtimeInfo requests the runtime's configuration. It returns the zero value on an
// error.
func runtimeInfo(ctx context.Context, endpoint string) container.Info {
	ctx, cancel := context.WithTimeout(ctx, runtimeInfoTimeout)
	defer cancel()
	driver, err := cri.New(cri.Config{RuntimeEndpoint: endpoint, Timeout: runtimeInfoTimeout, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return container.Info{}
	}
	defer driver.Close()
	info, err := driver.Info(ctx)
	if err != nil {
		return container.Info{}
	}
	return info
}

// printNet prints the network configuration and then the pods.
func (s *system) printNet(w io.Writer, doc *NetDocument) error {
	if err := netHead(doc).write(w); err != nil {
		return err
	}
	if len(doc.Pods) == 0 {
		_, err := fmt.Fprintln(w, "\nno pods on the pod network")
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return s.netTable(doc.Pods).write(w)
}

// netHead returns the rows about the network configuration.
func netHead(doc *NetDocument) *table {
	var t table
	t.add("MODE", modeText(doc))
	name := "NETWORKS"
	for _, n := range doc.Networks {
		text := n.Subnet.String() + ", gateway " + n.Gateway.String()
		if n.Kept {
			text += ", no new addresses"
		}
		t.add(name, text)
		name = ""
	}
	if doc.Mode == config.NetworkBridge || doc.Mode == config.NetworkRouted {
		t.add("BRIDGE", bridgeText(doc))
		t.add("MASQUERADE", masqueradeText(doc))
		t.add("RULES", rulesText(doc))
		t.add("SPOOFING", cmp.Or(doc.SpoofingProblem, "none: pods can send only from their own addresses"))
	}
	t.add("UPLINK", uplinkText(doc.Uplink))
	return &t
}

func modeText(doc *NetDocument) string {
	switch doc.Mode {
	case "":
		if doc.OnlyLoopback {
			return loopbackText(doc)
		}
		if doc.ConfigFile != "" {
			return "none: " + doc.ConfigFile + " is invalid: pods wait until the agent writes it again"
		}
		return "none: " + doc.ConfigFolder + " has no network configuration: pods wait until the agent writes it"
	case config.NetworkCNI:
		text := "cni: tinylet does not manage " + doc.ConfigFile
		if doc.Shadowed != "" {
			text += "; the container runtime uses it instead of " + doc.Shadowed + ", because its name sorts first"
		}
		return text
	case config.NetworkHost:
		return "host: only pods with hostNetwork start (" + doc.Refuse + ")"
	}
	return doc.Mode + ", configured in " + doc.ConfigFile
}

// loopbackText describes a configuration with only the loopback plugin.
func loopbackText(doc *NetDocument) string {
	text := "none: " + doc.ConfigFile + " has only the loopback plugin"
	if filepath.Base(doc.ConfigFile) < network.FileName {
		return text + ", and the container runtime uses it instead of " + cmp.Or(doc.Shadowed, "tinylet's configuration") + ", because its name sorts first: remove it"
	}
	return text + ": pods wait until the agent writes another configuration"
}

func bridgeText(doc *NetDocument) string {
	text := doc.Bridge.Name
	switch {
	case !doc.Bridge.Exists:
		text += " does not exist: the agent or the next pod creates it"
	case !doc.Bridge.Up:
		text += " is down: the agent or the next pod brings it up"
	}
	if doc.MTU == 0 {
		return text + "; pods use the uplink's MTU"
	}
	return text + "; pods use MTU " + strconv.Itoa(doc.MTU)
}

func masqueradeText(doc *NetDocument) string {
	if !doc.Masquerade {
		return "no: pods keep their addresses outside this node"
	}
	if len(doc.Direct) == 0 {
		return "outside this node"
	}
	return "outside this node, except to " + listed(doc.Direct)
}

func rulesText(doc *NetDocument) string {
	if doc.RulesProblem != "" && doc.Mode == config.NetworkRouted {
		return doc.RulesProblem + "; or nodes were added or removed in the last minute, and the configuration is written after the rules"
	}
	return cmp.Or(doc.RulesProblem, "as configured")
}

func uplinkText(u *UplinkDocument) string {
	if u == nil {
		return "none: there is no default route"
	}
	text := u.Name + ", MTU " + strconv.Itoa(u.MTU)
	if len(u.Addresses) > 0 {
		text += ", " + listed(u.Addresses)
	}
	return text
}

// listed joins the texts with commas.
func listed[T fmt.Stringer](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.String()
	}
	return strings.Join(texts, ", ")
}

func (s *system) netTable(pods []PodNetDocument) *table {
	var t table
	t.add("POD", "ADDRESSES", "INTERFACE", "PORTS", "AGE")
	for i := range pods {
		p := &pods[i]
		ports := make([]string, len(p.Ports))
		for i := range p.Ports {
			ports[i] = portText(&p.Ports[i])
		}
		const digits = 13 // of a container ID, as crictl prints
		t.add(cmp.Or(p.Pod, p.Container[:min(len(p.Container), digits)]), strings.ReplaceAll(listed(p.Addresses), " ", ""), p.Interface+mark(p.InterfaceMissing),
			cmp.Or(strings.Join(slices.Compact(ports), ","), "-"), s.ageThisBoot(ptr.Deref(p.Since, time.Time{})))
	}
	return &t
}

// portText formats a port such as 8080->80/TCP. The two entries of a port of a
// dual-stack pod have the same text.
func portText(p *PodPortDocument) string {
	host := strconv.Itoa(int(p.Host))
	if p.HostIP.IsValid() {
		host = netip.AddrPortFrom(p.HostIP, p.Host).String()
	}
	return fmt.Sprintf("%s->%d/%s%s", host, p.Target, p.Protocol, mark(p.Missing))
}

// mark returns "!" for a missing interface or port.
func mark(missing bool) string {
	if missing {
		return "!"
	}
	return ""
}
