package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/server/local"
)

func (s *system) ps() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps [POD] [flags]",
		Short: "List the pods and their containers",
		Long: "List the pods of this node with their containers.\n\n" +
			"STATUS is the same as in kubectl get pods. AGE is the time since the start of a\n" +
			"container, or since its end if it has terminated. It is ? if the clock was set\n" +
			"back since then. MEMORY is the working set. POD is a prefix of NAME or\n" +
			"NAMESPACE/NAME.",
		Example: `  # List the pods and their containers.
  tinylet ps

  # List the pods without their containers.
  tinylet ps --containers=false

  # Print the names of pods that are not ready, for a script.
  tinylet ps -o json | jq -r '.pods[] | select(.ready < .total) | .name'`,
		Args: cobra.MaximumNArgs(1),
	}
	socket, form := addSocket(cmd), addOutput(cmd)
	containers := cmd.Flags().BoolP("containers", "c", true, "list the containers of each pod")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		pods, err := local.NewClient(*socket).Pods(cmd.Context(), name)
		if err != nil {
			return err
		}
		slices.SortStableFunc(pods, func(a, b local.Pod) int {
			return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
		})
		doc := PodsDocument{Pods: []PodDocument{}}
		for i := range pods {
			doc.Pods = append(doc.Pods, podDocument(&pods[i]))
		}
		if *form == outputJSON {
			return printJSON(cmd.OutOrStdout(), doc)
		}
		if len(pods) == 0 {
			_, err := fmt.Fprintln(cmd.ErrOrStderr(), "no pods")
			return err
		}
		t := s.podTable(doc.Pods, *containers)
		return t.write(cmd.OutOrStdout())
	}
	return command(cmd)
}

func (s *system) podTable(pods []PodDocument, containers bool) *table {
	var t table
	t.add("NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "MEMORY")
	for i := range pods {
		p := &pods[i]
		t.add(p.Namespace, p.Name, fmt.Sprintf("%d/%d", p.Ready, p.Total), p.Status,
			s.restarts(p.Restarts, p.LastRestart), s.age(ptr.Deref(p.StartTime, time.Time{})), memory(p.MemoryBytes))
		if !containers {
			continue
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			t.add("", "  "+containerName(c), yesNo(c.Ready), containerStatus(c),
				s.restarts(c.Restarts, c.LastRestart), s.containerAge(c), memory(c.MemoryBytes))
		}
	}
	return &t
}

// containerName returns the name, with the type unless it is a main container.
func containerName(c *ContainerDocument) string {
	if c.Type == typeContainer {
		return c.Name
	}
	return c.Name + " (" + c.Type + ")"
}

// containerStatus returns the reason, with the exit code if it is not 0 and the reason
// does not contain it.
func containerStatus(c *ContainerDocument) string {
	if c.ExitCode != nil && *c.ExitCode != 0 && c.Reason != "ExitCode:"+strconv.Itoa(int(*c.ExitCode)) {
		return fmt.Sprintf("%s (exit %d)", c.Reason, *c.ExitCode)
	}
	return c.Reason
}

func (s *system) containerAge(c *ContainerDocument) string {
	if c.State == stateTerminated {
		return s.age(ptr.Deref(c.FinishedAt, time.Time{}))
	}
	return s.ageThisBoot(ptr.Deref(c.StartedAt, time.Time{}))
}

func (s *system) restarts(n int, last *time.Time) string {
	if n == 0 || last == nil {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d (%s ago)", n, s.age(*last))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
