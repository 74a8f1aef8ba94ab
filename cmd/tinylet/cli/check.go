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
)

// CheckDocument is what check -o json prints.
type CheckDocument struct {
	// OK is false where the node cannot work.
	OK       bool                `json:"ok"`
	Findings []preflight.Finding `json:"findings"`
}

// configFiles are looked for where no --config is given: a board's and the
// one that kubeadm writes.
var configFiles = []string{"etc/tinylet/config.yaml", "var/lib/kubelet/config.yaml"}

// checkFlags are the agent's flags that check --help shows; it takes them
// all, so that it can be called as the agent is.
var checkFlags = []string{"config", "config-dir", "container-runtime-endpoint", "hostname-override", "root-dir"}

func (s *system) check() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags]",
		Short: "Tell whether this system can be a node, and what helps where not",
		Long: "Tell whether this system can be a node: kernel, cgroups, modules, the container\n" +
			"runtime, the pods' network, space, clock and configuration. Each finding that is\n" +
			"not ok comes with its remedy. Nothing is changed, and no agent is needed.\n\n" +
			"Every flag of the agent is accepted. Without --config, /etc/tinylet/config.yaml\n" +
			"or else /var/lib/kubelet/config.yaml is used where it exists.\n\n" +
			"The exit code is 1 if the node cannot work.",
		Example: `  # Can this board run pods?
  tinylet check

  # Only what is wrong, for a script.
  tinylet check -o json | jq '.findings[] | select(.level != "ok")'`,
		Args: cobra.NoArgs,
	}
	form := addOutput(cmd)
	problems := cmd.Flags().BoolP("quiet", "q", false, "leave out what is ok")
	own := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { own[f.Name] = true })
	flags := config.NewFlags()
	flags.Add(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Hidden = f.Hidden || !own[f.Name] && !slices.Contains(checkFlags, f.Name)
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		findings := preflight.Run(cmd.Context(), s.checkOptions(cmd.Flags(), flags))
		failed := preflight.Failed(findings)
		if *problems {
			findings = slices.DeleteFunc(findings, func(f preflight.Finding) bool { return f.Level == preflight.OK })
		}
		var err error
		if *form == outputJSON {
			err = printJSON(cmd.OutOrStdout(), CheckDocument{OK: !failed, Findings: append([]preflight.Finding{}, findings...)})
		} else {
			err = printFindings(cmd.OutOrStdout(), findings, failed)
		}
		if err == nil && failed {
			err = &ExitError{Code: 1}
		}
		return err
	}
	return command(cmd)
}

// checkOptions takes from the configuration what it tells; where it cannot
// be read, the usual places are looked at.
func (s *system) checkOptions(set *pflag.FlagSet, flags *config.Flags) preflight.Options {
	o := preflight.Options{Root: s.root, Now: s.now(), Built: version.BuildTime()}
	s.findConfig(set)
	o.ConfigFile, _ = set.GetString("config") // the flag exists
	total := machine.Memory(machine.Roots{Proc: filepath.Join(s.root, "proc")})
	cfg, loaded, err := flags.Load(total)
	var warnings []string
	for _, w := range loaded {
		text := w.Message
		for _, a := range w.Attrs {
			text += " " + a.String()
		}
		warnings = append(warnings, text)
	}
	if err == nil {
		if err = config.Validate(cfg); err == nil {
			o.Eviction = kept(&cfg.Kubelet, total)
			o.Network, o.PodNetworks = cfg.Tinylet.Network, cfg.PodCIDRs()
		}
		o.Journal = preflight.Journal{
			Dir: filepath.Join(cfg.Paths.State, "journal"), Joined: cfg.Kubeconfig != "",
			Setting: cfg.Tinylet.Journal, Key: cfg.Tinylet.HasJournalKey(),
		}
		o.Endpoint = cfg.Kubelet.ContainerRuntimeEndpoint
		o.RootDir, o.LogDir = cfg.Paths.Root, cfg.Paths.PodLogs
		o.RunDir = filepath.Dir(cfg.Tinylet.SocketPath)
		o.NodeName = cfg.NodeName
		o.FailSwapOn = cfg.Kubelet.FailSwapOn == nil || *cfg.Kubelet.FailSwapOn
	}
	o.Config = func() ([]string, error) { return warnings, err }
	return o
}

// findConfig has the flags name the board's configuration, unless they name
// one.
func (s *system) findConfig(set *pflag.FlagSet) {
	if set.Changed("config") {
		return
	}
	for _, name := range configFiles {
		if path := filepath.Join(s.root, name); exists(path) {
			_ = set.Set("config", path) // any text is taken
			return
		}
	}
}

// kept is what a valid configuration keeps of a machine's memory.
func kept(kc *kubelet.KubeletConfiguration, total int64) preflight.Eviction {
	e := preflight.Eviction{Known: true}
	for _, reserved := range []map[string]string{kc.KubeReserved, kc.SystemReserved} {
		if q, err := resource.ParseQuantity(reserved["memory"]); err == nil {
			e.Reserved += uint64(max(q.Value(), 0))
		}
	}
	thresholds, _ := config.Thresholds(kc) // it is valid
	for _, t := range thresholds {
		if t.Signal == evictionapi.MemoryAvailable && t.Grace == 0 {
			e.Hard = max(e.Hard, uint64(t.Value.ForCapacity(total)))
		}
	}
	name := evictionapi.MemoryAvailable.String()
	e.Default = kc.EvictionHard[name] == evictionapi.DefaultHard(total)[name]
	return e
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
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
