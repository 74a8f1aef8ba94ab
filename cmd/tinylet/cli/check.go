package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/evictionapi"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/preflight"
	"github.com/tinylet/tinylet/agent/resource/cpumanager"
)

// CheckDocument is the output of check -o json.
type CheckDocument struct {
	// OK is false if a finding prevents the node from working.
	OK       bool                `json:"ok"`
	Findings []preflight.Finding `json:"findings"`
}

// configFiles are the configuration files that are used without --config: the one of
// the board image, or else the one that kubeadm writes. The first that exists wins.
var configFiles = []string{"etc/tinylet/config.yaml", "var/lib/kubelet/config.yaml"}

// checkFlags are the flags of the agent that check --help lists. check accepts all of
// them, so that it can be called with the agent's command line.
var checkFlags = []string{"config", "config-dir", "container-runtime-endpoint", "hostname-override", "root-dir"}

func (s *system) check() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags]",
		Short: "Check whether this system can be a node",
		Long: "Check whether this system can be a node: kernel, cgroups, modules, container\n" +
			"runtime, pod network, disk space, clock and configuration. Each finding that is\n" +
			"not ok has a remedy. The check changes nothing and needs no agent.\n\n" +
			"All flags of the agent are accepted. Without --config, the check uses\n" +
			"/etc/tinylet/config.yaml, or else /var/lib/kubelet/config.yaml, if it exists.\n\n" +
			"The exit code is 1 if the node cannot work.",
		Example: `  # Check this system.
  tinylet check

  # Print the problems for a script.
  tinylet check -o json | jq '.findings[] | select(.level != "ok")'`,
		Args: cobra.NoArgs,
	}
	form := addOutput(cmd)
	quiet := cmd.Flags().BoolP("quiet", "q", false, "omit the findings that are ok")
	own := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { own[f.Name] = true })
	flags := config.NewFlags(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Hidden = f.Hidden || !own[f.Name] && !slices.Contains(checkFlags, f.Name)
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		findings := preflight.Run(cmd.Context(), s.checkOptions(cmd.Flags(), flags))
		failed := preflight.Failed(findings)
		if *quiet {
			findings = slices.DeleteFunc(findings, func(f preflight.Finding) bool { return f.Level == preflight.OK })
		}
		err := form.print(cmd.OutOrStdout(), CheckDocument{OK: !failed, Findings: append([]preflight.Finding{}, findings...)},
			func(w io.Writer) error { return printFindings(w, findings, failed) })
		if err == nil && failed {
			err = &ExitError{Code: 1}
		}
		return err
	}
	return command(cmd)
}

// checkOptions returns the options of the check for the configuration. If that cannot
// be read, they are the defaults.
func (s *system) checkOptions(set *pflag.FlagSet, flags *config.Flags) preflight.Options {
	o := preflight.Options{Root: s.root, Input: preflight.Input{Now: s.now(), Built: version.BuildTime()}}
	cfg, warnings, err := s.load(set, flags)
	if err == nil {
		o.Endpoint = cfg.Kubelet.ContainerRuntimeEndpoint
		o.RootDir, o.LogDir = cfg.Paths.Root, cfg.Paths.PodLogs
		o.RunDir = filepath.Dir(cfg.Tinylet.SocketPath)
		o.NodeName, o.FailSwapOn = cfg.NodeName, *cfg.Kubelet.FailSwapOn
		o.Journal = preflight.Journal{
			Dir: cfg.Paths.Journal(), Joined: cfg.Kubeconfig != "",
			Setting: cfg.Tinylet.Journal, Key: cfg.Tinylet.HasJournalKey(),
		}
		if err = config.Validate(cfg); err == nil {
			o.Eviction = memoryEviction(&cfg.Kubelet, s.memory())
			o.Network, o.PodNetworks = cfg.Tinylet.Network, cfg.PodCIDRs()
			err = s.checkReserved(cfg)
		}
	}
	o.Config.File, _ = set.GetString("config") // the flag exists
	for _, w := range warnings {
		text := w.Message
		for _, a := range w.Attrs {
			text += " " + a.String()
		}
		o.Config.Warnings = append(o.Config.Warnings, text)
	}
	if err != nil {
		o.Config.Err = err.Error()
	}
	return o
}

// checkReserved returns an error if the agent would not start because the configuration
// reserves more than the machine has.
func (s *system) checkReserved(cfg *config.Config) error {
	k := &cfg.Kubelet
	if err := cpumanager.Reserve(k); err != nil {
		return err
	}
	roots := machine.Roots{Proc: filepath.Join(s.root, "proc"), Sys: filepath.Join(s.root, "sys"), Storage: filepath.Join(s.root, cfg.Paths.Root)}
	reserved := machine.Reserved{Kube: k.KubeReserved, System: k.SystemReserved}
	_, err := machine.EnforcedAllocatable(machine.Capacity(roots, k.MaxPods, k.PodsPerCore), reserved, roots)
	return err
}

// load loads the configuration of the agent. Without the flag config it uses the first
// of configFiles that exists.
func (s *system) load(set *pflag.FlagSet, flags *config.Flags) (*config.Config, []config.Warning, error) {
	for _, name := range configFiles {
		path := filepath.Join(s.root, name)
		if _, err := os.Stat(path); err == nil && !set.Changed("config") {
			_ = set.Set("config", path) // any text is valid
		}
	}
	return flags.Load(s.memory())
}

// memory returns the machine's memory in bytes, 0 if it is unknown.
func (s *system) memory() int64 {
	return machine.Memory(machine.Roots{Proc: filepath.Join(s.root, "proc")})
}

// memoryEviction returns the memory reservations and the hard eviction threshold of a
// valid configuration. total is the size of the memory in bytes.
func memoryEviction(kc *kubelet.KubeletConfiguration, total int64) preflight.Eviction {
	e := preflight.Eviction{Known: true}
	for _, reserved := range []map[string]string{kc.KubeReserved, kc.SystemReserved} {
		if q, err := resource.ParseQuantity(reserved["memory"]); err == nil {
			e.Reserved += uint64(max(q.Value(), 0))
		}
	}
	thresholds, _ := evictionapi.Parse(kc) // the configuration is valid
	for _, t := range thresholds {
		if t.Signal == evictionapi.MemoryAvailable && t.Grace == 0 {
			e.Hard = max(e.Hard, uint64(t.Value.ForCapacity(total)))
		}
	}
	name := evictionapi.MemoryAvailable.String()
	e.Default = kc.EvictionHard[name] == evictionapi.DefaultHard(total)[name]
	return e
}

func printFindings(w io.Writer, findings []preflight.Finding, failed bool) error {
	var t table
	count := map[preflight.Level]int{}
	for _, f := range findings {
		count[f.Level]++
		level := string(f.Level)
		if f.Level == preflight.Fail {
			level = strings.ToUpper(level)
		}
		t.add(level, f.ID, f.What)
		if f.Remedy != "" {
			t.add("", "", "-> "+f.Remedy)
		}
	}
	if err := t.write(w); err != nil {
		return err
	}
	verdict := "this node can work"
	if failed {
		verdict = "this node cannot work"
	}
	_, err := fmt.Fprintf(w, "%s: %d failed, %d warnings\n", verdict, count[preflight.Fail], count[preflight.Warn])
	return err
}
