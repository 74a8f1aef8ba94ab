package main

import (
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
)

const agentExamples = `  # Run the pods whose manifests are in a folder.
  %[1]s --pod-manifest-path /etc/kubernetes/manifests

  # Take the settings from a file, and see more in the log.
  %[1]s --config /etc/tinylet/config.yaml --v 4

  # Be a node of a cluster, with the files that kubeadm join wrote.
  %[1]s --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf \
      --bootstrap-kubeconfig /etc/kubernetes/bootstrap-kubelet.conf`

const boardExamples = `

  # Which pods run here? Can this board run pods at all?
  %[1]s ps
  %[1]s check`

const versionFlag = "version"

// everyday are the flags that tinylet --help shows; the rest is for those
// who know the kubelet.
var everyday = []string{
	"config", "config-dir", "pod-manifest-path", "hostname-override", "node-ip", "root-dir",
	"container-runtime-endpoint", "kubeconfig", "logging-format", "v", versionFlag,
}

// agentCommand runs the agent, with all of the kubelet's flags.
func (p *program) agentCommand(name string) *cobra.Command {
	flags := config.NewFlags()
	cmd := &cobra.Command{
		Use:               name,
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	flags.Add(cmd.Flags())
	// cobra's own --version prints another line. SetVersionTemplate would change
	// it, but links text/template, which finds methods by name: the linker then
	// keeps every exported method of every reachable type.
	printVersion := cmd.Flags().Bool(versionFlag, false, "print the version and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *printVersion {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Line())
			return err
		}
		return p.agent(cmd, flags)
	}
	cmd.Flags().SortFlags = true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())
	})
	return cmd
}

func (p *program) kubeletCommand() *cobra.Command {
	cmd := p.agentCommand(nameKubelet)
	cmd.Long = "tinylet as the kubelet: runs this node's pods. It takes every flag of the\n" +
		"kubelet " + version.Kubernetes + "; one that has no effect here says so in the log."
	cmd.Example = fmt.Sprintf(agentExamples, nameKubelet)
	return cmd
}

func (p *program) tinyletCommand() *cobra.Command {
	cmd := p.agentCommand(nameTinylet)
	cmd.Long = "tinylet makes a small board a Kubernetes node. Without a command, it runs the\n" +
		"agent; the commands are for someone at the board."
	cmd.Example = fmt.Sprintf(agentExamples+boardExamples, nameTinylet)
	cmd.AddCommand(p.commands...)
	cmd.AddCommand(flagsTopic(cmd.Flags()))
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Hidden = !slices.Contains(everyday, f.Name)
	})
	return cmd
}

// flagsTopic is the help page of all the agent's flags.
func flagsTopic(all *pflag.FlagSet) *cobra.Command {
	topic := &cobra.Command{
		Use:   "flags",
		Short: "Every flag of the agent: those of the kubelet " + version.Kubernetes,
	}
	topic.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		all.VisitAll(func(f *pflag.Flag) { f.Hidden = false })
		fmt.Fprint(cmd.OutOrStdout(), all.FlagUsages())
	})
	return topic
}

// agent loads and checks the configuration, sets up the log and runs the
// agent until the command's context ends.
func (p *program) agent(cmd *cobra.Command, flags *config.Flags) error {
	// The end of whatever reads the log must not end the node.
	signal.Ignore(syscall.SIGPIPE)
	cfg, warnings, err := flags.Load(machine.Memory(machine.Roots{}))
	if err != nil {
		return fmt.Errorf("load configuration: %w", err)
	}
	if err := config.Validate(cfg); err != nil {
		return fmt.Errorf("check configuration: %w", err)
	}
	log := newLogger(p.stderr, cfg)
	routeLibraries(log, cfg)
	for _, w := range warnings {
		log.LogAttrs(cmd.Context(), slog.LevelWarn, w.Message, w.Attrs...)
	}
	spareMemory()
	return p.run(cmd.Context(), cfg, log)
}
