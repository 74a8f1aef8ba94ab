package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/store/upgrade"
)

const agentExamples = `  # Run the static pods of a directory.
  %[1]s --pod-manifest-path /etc/kubernetes/manifests

  # Read the configuration from a file and log more.
  %[1]s --config /etc/tinylet/config.yaml --v 4

  # Join a cluster with the files that kubeadm join wrote.
  %[1]s --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf \
      --bootstrap-kubeconfig /etc/kubernetes/bootstrap-kubelet.conf`

const commandExamples = `

  # List the pods of this node, and check whether this system can be a node.
  %[1]s ps
  %[1]s check`

const versionFlag = "version"

// commonFlags are the flags that tinylet --help lists. tinylet help flags lists
// all flags.
var commonFlags = []string{
	"config", "config-dir", "pod-manifest-path", "hostname-override", "node-ip", "root-dir",
	"container-runtime-endpoint", "kubeconfig", "logging-format", "v", versionFlag,
}

// agentCommand returns the command that runs the agent. It has all flags of the
// kubelet.
func (p *program) agentCommand(name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               name,
		Short:             "Run Kubernetes pods on this node",
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	flags := config.NewFlags(cmd.Flags())
	// cobra's own --version prints another line. SetVersionTemplate could change
	// it, but it links text/template, which finds methods by name: the linker then
	// keeps every exported method of every reachable type.
	printVersion := cmd.Flags().Bool(versionFlag, false, "print the version and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *printVersion {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Line())
			return err
		}
		return p.agent(cmd, flags)
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())
	})
	return cmd
}

func (p *program) kubeletCommand() *cobra.Command {
	cmd := p.agentCommand(nameKubelet)
	cmd.Long = "Run tinylet as the kubelet of this node. All flags of the kubelet " + version.Kubernetes + "\n" +
		"are accepted. The agent logs which of them have no effect."
	cmd.Example = fmt.Sprintf(agentExamples, nameKubelet)
	return cmd
}

func (p *program) tinyletCommand() *cobra.Command {
	cmd := p.agentCommand(nameTinylet)
	cmd.Long = "Run a Kubernetes node agent for small boards. Without a command, tinylet runs the\n" +
		"agent. The commands show and change the state of this node."
	cmd.Example = fmt.Sprintf(agentExamples+commandExamples, nameTinylet)
	cmd.AddCommand(p.commands...)
	cmd.AddCommand(flagsTopic(cmd.Flags()))
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Hidden = !slices.Contains(commonFlags, f.Name)
	})
	return cmd
}

// flagsTopic returns the help topic that lists all flags of the agent.
func flagsTopic(all *pflag.FlagSet) *cobra.Command {
	topic := &cobra.Command{
		Use:   "flags",
		Short: "List all flags of the agent, which are those of the kubelet " + version.Kubernetes,
	}
	topic.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		all.VisitAll(func(f *pflag.Flag) { f.Hidden = false })
		fmt.Fprint(cmd.OutOrStdout(), all.FlagUsages())
	})
	return topic
}

// agent loads and validates the configuration, sets up logging and sets p.start.
func (p *program) agent(cmd *cobra.Command, flags *config.Flags) error {
	// The agent must survive the end of the process that reads its log.
	signal.Ignore(syscall.SIGPIPE)
	cfg, warnings, err := flags.Load(machine.Memory(machine.Roots{}))
	if err != nil {
		return fmt.Errorf("load configuration: %w", err)
	}
	if err := config.Validate(cfg); err != nil {
		return fmt.Errorf("validate configuration: %w", err)
	}
	log := newLogger(p.stderr, cfg)
	routeLibraries(log, cfg)
	for _, w := range warnings {
		log.LogAttrs(cmd.Context(), slog.LevelWarn, w.Message, w.Attrs...)
	}
	setGCPercent()
	p.start = func(ctx context.Context) error { return onTrial(ctx, cfg, log, upgrade.System, p.run) }
	return nil
}
