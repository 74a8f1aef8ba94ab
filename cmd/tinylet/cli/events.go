package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/event"
	"github.com/tinylet/tinylet/agent/local"
)

// EventsDocument is what events -o json prints.
type EventsDocument struct {
	Events []EventDocument `json:"events"`
}

// EventDocument is one event.
type EventDocument struct {
	// Namespace, Pod and UID are empty where it happened to the node.
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	UID       string    `json:"uid,omitempty"`
	Type      string    `json:"type"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Count     int       `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

func (s *system) events() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events [POD] [flags]",
		Short: "List what happened lately to pods and to the node",
		Long: "List what happened lately to pods and to the node, the newest last. The agent\n" +
			"keeps a few hundred events in memory.\n\n" +
			"POD is the beginning of a name, or of NAMESPACE/NAME.",
		Example: `  # What went wrong?
  tinylet events --warnings

  # What happened to the pods whose names begin with web?
  tinylet events web`,
		Args: cobra.MaximumNArgs(1),
	}
	socket, form := addSocket(cmd), addOutput(cmd)
	warnings := cmd.Flags().BoolP("warnings", "w", false, "only what somebody should look at")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all, err := local.NewClient(*socket).Events(cmd.Context())
		if err != nil {
			return err
		}
		doc := EventsDocument{Events: []EventDocument{}}
		for i := range all {
			e := &all[i]
			if (len(args) > 0 && !startsWith(e, args[0])) || (*warnings && e.Type != "Warning") {
				continue
			}
			doc.Events = append(doc.Events, eventDocument(e))
		}
		if *form == outputJSON {
			return printJSON(cmd.OutOrStdout(), doc)
		}
		if len(doc.Events) == 0 {
			_, err := fmt.Fprintln(cmd.ErrOrStderr(), "no events")
			return err
		}
		return s.printEvents(cmd.OutOrStdout(), doc.Events, "")
	}
	return command(cmd)
}

func startsWith(e *event.Event, text string) bool {
	return strings.HasPrefix(e.Pod.Name, text) || strings.HasPrefix(e.Pod.String(), text)
}

func eventDocument(e *event.Event) EventDocument {
	return EventDocument{
		Namespace: e.Pod.Namespace, Pod: e.Pod.Name, UID: string(e.Pod.UID),
		Type: e.Type, Reason: e.Reason, Message: e.Message, Count: e.Count, First: e.First.UTC(), Last: e.Last.UTC(),
	}
}

// printEvents keeps their order, in which they last happened: the clock may
// have jumped between them.
func (s *system) printEvents(w io.Writer, events []EventDocument, indent string) error {
	var t table
	now, up := s.now(), s.uptime()
	header := []string{indent + "LAST SEEN", "TYPE", "REASON", "POD", "MESSAGE"}
	ofOnePod := indent != ""
	if ofOnePod {
		header = slices.Delete(header, 3, 4)
	}
	t.add(header...)
	for i := range events {
		e := &events[i]
		row := []string{indent + seen(e, now, up), e.Type, e.Reason}
		if !ofOnePod {
			row = append(row, eventPod(e))
		}
		t.add(append(row, e.Message)...)
	}
	return t.write(w)
}

func eventPod(e *EventDocument) string {
	if e.Pod == "" {
		return "(node)"
	}
	return e.Namespace + "/" + e.Pod
}

func seen(e *EventDocument, now time.Time, up time.Duration) string {
	last := age(e.Last, now, up)
	if e.Count < 2 {
		return last
	}
	return fmt.Sprintf("%s (x%d over %s)", last, e.Count, age(e.First, now, up))
}

// eventsOf are those of one life of a pod; of the name where they have no
// UID.
func eventsOf(all []event.Event, p *local.Pod) []EventDocument {
	out := []EventDocument{}
	for i := range all {
		e := &all[i]
		if cmp.Or(e.Pod.UID, p.Pod.UID) == p.Pod.UID && e.Pod.Namespace == p.Pod.Namespace && e.Pod.Name == p.Pod.Name {
			out = append(out, eventDocument(e))
		}
	}
	return out
}
