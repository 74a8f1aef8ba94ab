package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/server/local"
)

// DrainDocument is the output of drain-local -o json.
type DrainDocument struct {
	// Remaining is the number of pods that have not terminated.
	Remaining int `json:"left"`
}

func (s *system) drainLocal() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain-local [flags]",
		Short: "Terminate this node's pods before a shutdown",
		Long: "Terminate this node's pods before a shutdown, in the order of their priorities,\n" +
			"within shutdownGracePeriod or shutdownGracePeriodByPodPriority of the\n" +
			"configuration. Meanwhile the node is not ready and rejects new pods. The command\n" +
			"waits until all pods have terminated and, on a joined node, until the API server\n" +
			"has received their status.\n\n" +
			"The API server is not needed for the drain, so it works without network. The\n" +
			"command is for the init scripts of machines without systemd. On machines with\n" +
			"systemd, the agent holds an inhibitor lock of logind. If the file shutdown exists\n" +
			"next to the agent's socket, SIGTERM to the agent has the same effect.\n\n" +
			"After the reboot, static pods start again. So do pods of the API server for which\n" +
			"it has not received the termination. The other pods have failed, and their\n" +
			"controllers create replacements.",
		Example: `  # Drain the node in the script that stops the machine.
  tinylet drain-local

  # Cancel the drain because the machine stays up.
  tinylet drain-local --cancel`,
		Args: cobra.NoArgs,
	}
	socket, form := addSocket(cmd), addOutput(cmd)
	cancel := cmd.Flags().Bool("cancel", false, "cancel the drain: the node admits pods again; terminated pods stay terminated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client := local.NewClient(*socket)
		if *cancel {
			return client.CancelDrain(cmd.Context())
		}
		remaining, err := client.Drain(cmd.Context(), func(remaining int) {
			// A failed progress message does not affect the result.
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "terminating the node's pods, %d remaining\n", remaining)
		})
		switch {
		case err != nil:
			return err
		case *form == outputJSON:
			return printJSON(cmd.OutOrStdout(), DrainDocument{Remaining: remaining})
		case remaining > 0:
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d pods did not terminate within their grace period; `tinylet ps` lists them\n", remaining)
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "all pods have terminated")
		return err
	}
	return command(cmd)
}
