package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/server/local"
)

// DrainDocument is what drain-local -o json prints.
type DrainDocument struct {
	// Left is how many pods have not ended.
	Left int `json:"left"`
}

func (s *system) drainLocal() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain-local [flags]",
		Short: "End this node's pods before the machine goes down",
		Long: "End this node's pods before the machine goes down: in the order of their\n" +
			"priorities, within shutdownGracePeriod or shutdownGracePeriodByPodPriority of\n" +
			"the configuration. The node takes no new ones meanwhile, and says that it is not\n" +
			"ready. The command waits for the end of the pods, and until the API server, if\n" +
			"there is one, has heard of it.\n\n" +
			"It asks nothing of the API server, so it works without network. It is for init\n" +
			"scripts of machines without systemd, where the agent asks logind to wait. The\n" +
			"file shutdown beside the agent's socket has the same effect when the agent is\n" +
			"then ended with SIGTERM.\n\n" +
			"After the reboot static pods start again, and those of the API server of whose\n" +
			"end it had not heard; the others have failed for good, and whatever made them\n" +
			"makes new ones.",
		Example: `  # In the script that stops the machine:
  tinylet drain-local

  # It stays up after all.
  tinylet drain-local --cancel`,
		Args: cobra.NoArgs,
	}
	socket, form := addSocket(cmd), addOutput(cmd)
	cancel := cmd.Flags().Bool("cancel", false, "take it back: the node takes pods again, those that have ended stay so")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client := local.NewClient(*socket)
		if *cancel {
			return client.CancelDrain(cmd.Context())
		}
		left, err := client.Drain(cmd.Context(), func(left int) {
			// Its error is the reader's, who gets the result all the same.
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "ending the node's pods, %d left\n", left)
		})
		switch {
		case cmd.Context().Err() != nil:
			return &ExitError{Code: codeInterrupted}
		case err != nil:
			return err
		case *form == outputJSON:
			return printJSON(cmd.OutOrStdout(), DrainDocument{Left: left})
		case left > 0:
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d pods did not end in their time; `tinylet ps` shows them\n", left)
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "all pods have ended")
		return err
	}
	return command(cmd)
}
