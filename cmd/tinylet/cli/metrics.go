package cli

import (
	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/server/local"
)

func (s *system) metrics() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics [flags]",
		Short: "Print what Prometheus can be told",
		Long: `Print the running agent's metrics in the text format of Prometheus, under the names
that dashboards know of a kubelet and its own. All are counted from the agent's start.`,
		Example: `  # How many bytes went to the API server, and for what?
  tinylet metrics | grep tinylet_api_bytes_total

  # Hand them to the textfile collector of a node exporter, which has a process of its own.
  tinylet metrics | grep -vE '^(# (HELP|TYPE) )?(go|process)_' > /var/lib/node_exporter/tinylet.prom.new &&
      mv /var/lib/node_exporter/tinylet.prom.new /var/lib/node_exporter/tinylet.prom`,
		Args: cobra.NoArgs,
	}
	socket := addSocket(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, flush := shown(cmd.OutOrStdout(), false)
		defer flush()
		return local.NewClient(*socket).Metrics(cmd.Context(), out)
	}
	return command(cmd)
}
