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

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/preflight"
)

func (s *system) net() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net [flags]",
		Short: "Show how the pods get their network, and which addresses and ports they have",
		Long: "Show how the pods of this node get their network, and of each pod its addresses,\n" +
			"the interface that leads to it on the host, and its ports of the host, as\n" +
			"HOST->POD. Pods on the host's network have none and are not shown.\n\n" +
			"No agent is needed: it is read from the configuration that the container runtime\n" +
			"takes, from what tinylet's plugin remembers, and from the kernel. An interface\n" +
			"or a port that is remembered and that the kernel does not have is marked with !.\n" +
			"It has to be run as root.",
		Example: `  # Who has which address?
  tinylet net

  # Which pod answers at port 8080 of this host?
  tinylet net -o json | jq -r '.pods[] | select(any(.ports[]?; .host == 8080)) | .pod'`,
		Args: cobra.NoArgs,
	}
	form := addOutput(cmd)
	folder := cmd.Flags().String("config-folder", "", "`folder` of the runtime's network configurations (default that of the board's configuration)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.uid() != 0 {
			return errors.New("the pods' network is shown to root alone: run this with sudo, or as root")
		}
		doc, err := readNet(cmp.Or(*folder, s.networkFolder(cmd.Context())), filepath.Join(s.root, stateDir))
		if err != nil {
			return err
		}
		if *form == outputJSON {
			return printJSON(cmd.OutOrStdout(), doc)
		}
		return s.printNet(cmd.OutOrStdout(), &doc)
	}
	return command(cmd)
}

// networkFolder is where the board's configuration has the runtime's network
// configurations, or else where the runtime says it has them, or else the usual
// directory.
func (s *system) networkFolder(ctx context.Context) string {
	var settings config.Network
	endpoint := preflight.DefaultEndpoint
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags := config.NewFlags()
	flags.Add(set)
	s.findConfig(set)
	cfg, _, err := flags.Load(machine.Memory(machine.Roots{Proc: filepath.Join(s.root, "proc")}))
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

// runtimeInfoLimit bounds the question for the runtime's directories.
const runtimeInfoLimit = 2 * time.Second

// runtimeInfo asks the runtime for its configuration; empty where it does not
// answer.
func runtimeInfo(ctx context.Context, endpoint string) container.Info {
	ctx, cancel := context.WithTimeout(ctx, runtimeInfoLimit)
	defer cancel()
	driver, err := cri.New(cri.Config{RuntimeEndpoint: endpoint, Timeout: runtimeInfoLimit, Log: slog.New(slog.DiscardHandler)})
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

// printNet prints what all pods share, and then the pods.
func (s *system) printNet(w io.Writer, doc *NetDocument) error {
	if err := netHead(doc).write(w); err != nil {
		return err
	}
	if len(doc.Pods) == 0 {
		_, err := fmt.Fprintln(w, "\nno pod has a network of its own")
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return s.netTable(doc.Pods).write(w)
}

func netHead(doc *NetDocument) *table {
	var t table
	t.add("MODE", modeText(doc))
	for i, n := range doc.Networks {
		text := n.Subnet.String() + ", gateway " + n.Gateway.String()
		if n.Kept {
			text += ", gives no more addresses"
		}
		t.add(first(i, "NETWORKS"), text)
	}
	if doc.Mode == config.NetworkBridge || doc.Mode == config.NetworkRouted {
		t.add("BRIDGE", bridgeText(doc))
		t.add("MASQUERADE", masqueradeText(doc))
		t.add("RULES", rulesText(doc))
		t.add("SPOOFING", cmp.Or(doc.SpoofingProblem, "none: pods send from their own addresses alone"))
	}
	t.add("UPLINK", uplinkText(doc.Uplink))
	return &t
}

// first is the name before the first of several lines.
func first(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}

func modeText(doc *NetDocument) string {
	text := ""
	switch doc.Mode {
	case "":
		if doc.OnlyLoopback {
			return loopbackText(doc)
		}
		if doc.ConfigFile != "" {
			return "none: " + doc.ConfigFile + " cannot be read, so pods wait for one that can; the agent writes it anew"
		}
		return "none: there is no network configuration in " + doc.ConfigFolder + ", so pods wait for one; the agent writes it"
	case config.NetworkCNI:
		text = "cni: " + doc.ConfigFile + " is not tinylet's, which leaves it alone"
		if doc.Shadowed != "" {
			text += "; the runtime takes it in place of " + doc.Shadowed + ", since its name comes first"
		}
		return text
	case config.NetworkHost:
		return "host: no pod gets a network of its own (" + doc.Refuse + ")"
	}
	return doc.Mode + ", by " + doc.ConfigFile
}

// loopbackText tells of a configuration without a network that comes first.
func loopbackText(doc *NetDocument) string {
	text := "none: " + doc.ConfigFile + " has the loopback alone"
	if filepath.Base(doc.ConfigFile) < network.FileName {
		return text + ", and the runtime takes it in place of " + cmp.Or(doc.Shadowed, "tinylet's") + ", since its name comes first: remove it"
	}
	return text + ", so pods wait for another; the agent writes it"
}

func bridgeText(doc *NetDocument) string {
	text := doc.Bridge.Name
	switch {
	case !doc.Bridge.Exists:
		text += " is not there: the agent makes it, or the next pod does"
	case !doc.Bridge.Up:
		text += " is down: the agent brings it up, or the next pod does"
	}
	if doc.MTU == 0 {
		return text + "; pods have the uplink's MTU"
	}
	return text + "; pods have an MTU of " + strconv.Itoa(doc.MTU)
}

func masqueradeText(doc *NetDocument) string {
	if !doc.Masquerade {
		return "no: pods have their own addresses everywhere"
	}
	if len(doc.Direct) == 0 {
		return "beyond this node"
	}
	return "beyond this node, but not to " + listed(doc.Direct)
}

func rulesText(doc *NetDocument) string {
	if doc.RulesProblem != "" && doc.Mode == config.NetworkRouted {
		return doc.RulesProblem + "; or nodes have come or gone in the last minute: the configuration follows the rules then"
	}
	if doc.RulesProblem != "" {
		return doc.RulesProblem
	}
	return "as they should be"
}

func uplinkText(u *UplinkDocument) string {
	if u == nil {
		return "none: no default route leads anywhere"
	}
	text := u.Name + ", MTU " + strconv.Itoa(u.MTU)
	if len(u.Addresses) > 0 {
		text += ", " + listed(u.Addresses)
	}
	return text
}

func listed[T fmt.Stringer](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.String()
	}
	return strings.Join(texts, ", ")
}

func (s *system) netTable(pods []PodNetDocument) *table {
	var t table
	now, up := s.now(), s.uptime()
	t.add("POD", "ADDRESSES", "INTERFACE", "PORTS", "AGE")
	for i := range pods {
		p := &pods[i]
		ports := make([]string, len(p.Ports))
		for i := range p.Ports {
			ports[i] = portText(&p.Ports[i])
		}
		t.add(cmp.Or(p.Pod, shortID(p.Container)), addressesText(p.Addresses), p.Interface+mark(p.InterfaceMissing),
			cmp.Or(strings.Join(slices.Compact(ports), ","), "-"), ageThisBoot(value(p.Since), now, up))
	}
	return &t
}

func addressesText(all []netip.Addr) string {
	return strings.ReplaceAll(listed(all), " ", "")
}

// portText is such as 8080->80/TCP: of the two that a port has where a pod has
// both families it is the same.
func portText(p *PodPortDocument) string {
	host := strconv.Itoa(int(p.Host))
	if p.HostIP.IsValid() {
		host = netip.AddrPortFrom(p.HostIP, p.Host).String()
	}
	return fmt.Sprintf("%s->%d/%s%s", host, p.Target, p.Protocol, mark(p.Missing))
}

func mark(missing bool) string {
	if missing {
		return "!"
	}
	return ""
}

// shortID is as much of a container's ID as crictl shows.
func shortID(id string) string {
	const shown = 13
	if len(id) > shown {
		return id[:shown]
	}
	return id
}
