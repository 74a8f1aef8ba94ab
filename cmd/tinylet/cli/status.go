package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/source/offline"
	"github.com/tinylet/tinylet/agent/store/upgrade"
)

func (s *system) status() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [flags]",
		Short: "Show the status of the agent",
		Long: `Show the agent's version, uptime, health and number of calls to the container
runtime, and the actions that an administrator must take. On a joined node, also
show the connection to the API server: the node conditions, the expiry of the
certificates, and the bytes sent and received today and since the start, which are
the sums of tinylet_api_bytes_total. The exit code is 1 if the agent is not healthy.`,
		Example: `  # Show the status of the agent.
  tinylet status

  # Also list the Secrets on the disk.
  tinylet status --secrets

  # Print the health for a script.
  tinylet status -o json | jq .health`,
		Args: cobra.NoArgs,
	}
	socket, form := addSocket(cmd), addOutput(cmd)
	secrets := cmd.Flags().Bool("secrets", false, "list the Secrets on the disk, which must be renewed if the board is lost")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		st, err := local.NewClient(*socket).Status(cmd.Context())
		if err != nil {
			return err
		}
		t := s.statusTable(&st)
		if *secrets {
			secretRows(t, st.Cluster)
		}
		err = form.print(cmd.OutOrStdout(), st, t.write)
		if err == nil && len(st.Health) > 0 {
			err = &ExitError{Code: 1}
		}
		return err
	}
	return command(cmd)
}

func (s *system) statusTable(st *local.Status) *table {
	var t table
	t.add("VERSION", st.Kubelet+" ("+st.OS+"/"+st.Arch+", "+st.Go+")")
	t.add("PID", fmt.Sprint(st.PID))
	t.add("RUNS FOR", s.age(st.Started))
	if upgrade.System.OnTrial() {
		t.add("UPGRADE", "this binary is on trial until the agent has been healthy for a minute")
	} else if reason := upgrade.System.Undone(); reason != "" {
		t.add("UPGRADE", "undone: "+reason)
	}
	t.add("RUNTIME CALLS", fmt.Sprint(st.RuntimeCalls))
	if st.Cluster != nil {
		s.clusterRows(&t, st.Cluster)
	}
	for i := range st.Conditions {
		if c := &st.Conditions[i]; !c.Healthy() {
			t.add("NODE", conditionText(c))
		}
	}
	if st.Problem != "" {
		t.add("TO DO", clean(st.Problem))
	}
	for _, todo := range st.Todo {
		t.add("TO DO", clean(todo))
	}
	if len(st.Health) == 0 {
		t.add("HEALTH", "ok")
	}
	for _, name := range slices.Sorted(maps.Keys(st.Health)) {
		t.add("HEALTH", name+": "+clean(st.Health[name]))
	}
	return &t
}

func (s *system) clusterRows(t *table, c *local.Cluster) {
	node := "not registered yet"
	if c.Registered {
		node = "registered"
	}
	t.add("NODE", node)
	for _, condition := range c.Conditions {
		t.add("", conditionText(&condition))
	}
	server := "has never answered"
	if c.LastResponse != nil {
		server = "answered " + s.age(*c.LastResponse) + " ago"
	}
	if c.Failure != "" {
		server += ", now fails: " + clean(c.Failure)
	}
	t.add("API SERVER", server)
	bytes := fmt.Sprintf("%s sent, %s received today; %s and %s since the start",
		traffic(c.SentToday), traffic(c.ReceivedToday), traffic(c.Sent), traffic(c.Received))
	if c.Metered {
		bytes += " (metered)"
	}
	t.add("BYTES", bytes)
	if c.Expires != nil {
		t.add("CERTIFICATE", "expires "+c.Expires.UTC().Format(time.RFC3339))
	}
	if c.ServingExpires != nil {
		t.add("", "the kubelet API's certificate expires "+c.ServingExpires.UTC().Format(time.RFC3339))
	}
	if c.Journal != nil {
		journalRows(t, c.Journal)
	}
	if c.Problem != "" {
		t.add("TO DO", clean(c.Problem))
	}
}

// traffic formats a number of bytes of which 0 is known.
func traffic(bytes uint64) string {
	if bytes == 0 {
		return "0Ki"
	}
	return memory(bytes)
}

// journalRows adds the state of the journal on disk.
func journalRows(t *table, j *local.Journal) {
	text := map[offline.State]string{
		offline.StateSealed: "sealed", offline.StatePlain: "not sealed",
		offline.StateOff: "off", offline.StateNone: "not in use",
	}[j.State]
	if text == "" {
		text = clean(string(j.State)) // from an agent of a later version
	}
	if j.State == offline.StateSealed || j.State == offline.StatePlain {
		text += fmt.Sprintf(", Secrets in it: %d", len(j.Secrets))
	}
	t.add("JOURNAL", text)
	for _, aside := range j.Aside {
		t.add("", "quarantined: "+clean(aside))
	}
}

// secretRows adds the names of the Secrets on disk, never their values.
func secretRows(t *table, c *local.Cluster) {
	if c == nil || c.Journal == nil {
		return
	}
	for _, name := range c.Journal.Secrets {
		t.add("SECRET", clean(name))
	}
}

// conditionText formats a node condition in one line. It includes the message only if
// the condition is not healthy.
func conditionText(c *local.Condition) string {
	text := c.Type + " " + c.Status + " (" + clean(c.Reason) + ")"
	if !c.Healthy() && c.Message != "" {
		text += ": " + clean(c.Message)
	}
	return text
}

func (s *system) metrics() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics [flags]",
		Short: "Print the metrics of the agent",
		Long: `Print the metrics of the running agent in the text format of Prometheus: metrics of
the kubelet under the same names, and tinylet's own. All count from the agent's start.`,
		Example: `  # Print the bytes sent to and received from the API server, by purpose.
  tinylet metrics | grep tinylet_api_bytes_total

  # Pass them to the textfile collector of a node exporter. It has its own process metrics.
  tinylet metrics | grep -vE '^(# (HELP|TYPE) )?(go|process)_' > /var/lib/node_exporter/tinylet.prom.new &&
      mv /var/lib/node_exporter/tinylet.prom.new /var/lib/node_exporter/tinylet.prom`,
		Args: cobra.NoArgs,
	}
	socket := addSocket(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, flush := terminalWriter(cmd.OutOrStdout(), false)
		defer flush()
		return local.NewClient(*socket).Metrics(cmd.Context(), out)
	}
	return command(cmd)
}
