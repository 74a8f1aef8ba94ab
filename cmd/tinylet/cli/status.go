package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/source/offline"
)

// StatusDocument is what status -o json prints.
type StatusDocument = local.Status

func (s *system) status() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [flags]",
		Short: "show how the agent does",
		Long: `Show which agent runs, since when, whether it is healthy, how often it has called
the container runtime, and what somebody has to do. On a node of a cluster also
how it does with the API server: the node's conditions, when its certificates
expire, and the bytes of today and since the start, which are those of tinylet
metrics, summed. The exit code is 1 if it is not healthy.`,
		Example: `  tinylet status
  tinylet status -o json`,
		Args: cobra.NoArgs,
	}
	socket, form := addSocket(cmd), addOutput(cmd)
	secrets := cmd.Flags().Bool("secrets", false, "name the Secrets that are on the disk: those to renew if the board is lost")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		st, err := local.NewClient(*socket).Status(cmd.Context())
		if err != nil {
			return err
		}
		if *form == outputJSON {
			err = printJSON(cmd.OutOrStdout(), st)
		} else {
			t := s.statusTable(&st)
			if *secrets {
				secretRows(t, st.Cluster)
			}
			err = t.write(cmd.OutOrStdout())
		}
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
	t.add("RUNS FOR", age(st.Started, s.now(), s.uptime()))
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
		server = "answered " + age(*c.LastResponse, s.now(), s.uptime()) + " ago"
	}
	if c.Failure != "" {
		server += ", and fails now: " + clean(c.Failure)
	}
	t.add("API SERVER", server)
	spent := fmt.Sprintf("%s sent, %s received today; %s and %s since the start",
		memory(c.SentToday), memory(c.ReceivedToday), memory(c.Sent), memory(c.Received))
	if c.Metered {
		spent += " (metered)"
	}
	t.add("BYTES", spent)
	if c.Expires != nil {
		t.add("CERTIFICATE", "expires "+c.Expires.UTC().Format(time.RFC3339))
	}
	if c.ServingExpires != nil {
		t.add("", "that of the node's API expires "+c.ServingExpires.UTC().Format(time.RFC3339))
	}
	if c.Journal != nil {
		journalRows(t, c.Journal)
	}
	if c.Problem != "" {
		t.add("TO DO", clean(c.Problem))
	}
}

// journalRows are what is kept on the disk.
func journalRows(t *table, j *local.Journal) {
	text := map[offline.State]string{
		offline.StateSealed: "sealed", offline.StatePlain: "not sealed",
		offline.StateOff: "off", offline.StateNone: "not in use",
	}[j.State]
	if text == "" {
		text = clean(string(j.State)) // a later agent's
	}
	if j.State == offline.StateSealed || j.State == offline.StatePlain {
		text += fmt.Sprintf(", Secrets in it: %d", len(j.Secrets))
	}
	t.add("JOURNAL", text)
	for _, aside := range j.Aside {
		t.add("", "put aside: "+clean(aside))
	}
}

// secretRows name the Secrets that are on the disk, never their values.
func secretRows(t *table, c *local.Cluster) {
	if c == nil || c.Journal == nil {
		return
	}
	for _, name := range c.Journal.Secrets {
		t.add("SECRET", clean(name))
	}
}

// conditionText is a condition of the node in one line. Its message is worth
// the room only if something is wrong.
func conditionText(c *local.Condition) string {
	text := c.Type + " " + c.Status + " (" + clean(c.Reason) + ")"
	if !c.Healthy() && c.Message != "" {
		text += ": " + clean(c.Message)
	}
	return text
}
