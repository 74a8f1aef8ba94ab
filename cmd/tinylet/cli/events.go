package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/server/local"
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

// eventFlags are the flags of events.
type eventFlags struct {
	socket *string
	form   *output
	types  []string
	watch  bool
}

func (s *system) events() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events [POD] [flags]",
		Short: "List what happened lately to pods and to the node",
		Long: "List what happened lately to pods and to the node, the newest last. The agent\n" +
			"keeps a few hundred events in memory, and a few dozen of each pod.\n\n" +
			"POD is the beginning of a name, or of NAMESPACE/NAME. With --watch and -o json,\n" +
			"each event is a document in a line of its own.",
		Example: `  # What went wrong?
  tinylet events --types Warning

  # What happens to the pods whose names begin with web?
  tinylet events web --watch`,
		Args: cobra.MaximumNArgs(1),
	}
	f := eventFlags{socket: addSocket(cmd), form: addOutput(cmd)}
	cmd.Flags().StringSliceVar(&f.types, "types", nil, "only events of these `types`: Normal, Warning")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on with what happens from now on")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		wanted, err := f.filter(args)
		if err != nil {
			return err
		}
		client := local.NewClient(*f.socket)
		if f.watch {
			return watchEvents(cmd, client, wanted, *f.form)
		}
		all, err := client.Events(cmd.Context())
		if err != nil {
			return err
		}
		return s.listEvents(cmd, all, wanted, *f.form)
	}
	return command(cmd)
}

// filter is which events are wanted.
func (f *eventFlags) filter(args []string) (func(*event.Event) bool, error) {
	var types []string
	for _, asked := range f.types {
		i := slices.IndexFunc(eventTypes, func(known string) bool { return strings.EqualFold(known, asked) })
		if i < 0 {
			return nil, fmt.Errorf("--types %q: it must be of %s", asked, strings.Join(eventTypes, ", "))
		}
		types = append(types, eventTypes[i])
	}
	return func(e *event.Event) bool {
		return (len(args) == 0 || startsWith(e, args[0])) && (len(types) == 0 || slices.Contains(types, e.Type))
	}, nil
}

var eventTypes = []string{v1.EventTypeNormal, v1.EventTypeWarning}

func (s *system) listEvents(cmd *cobra.Command, all []event.Event, wanted func(*event.Event) bool, form output) error {
	doc := EventsDocument{Events: []EventDocument{}}
	for i := range all {
		if wanted(&all[i]) {
			doc.Events = append(doc.Events, eventDocument(&all[i]))
		}
	}
	if form == outputJSON {
		return printJSON(cmd.OutOrStdout(), doc)
	}
	if len(doc.Events) == 0 {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "no events")
		return err
	}
	return s.printEvents(cmd.OutOrStdout(), doc.Events, "")
}

// watchEvents prints each event in a line until it is interrupted.
func watchEvents(cmd *cobra.Command, client *local.Client, wanted func(*event.Event) bool, form output) error {
	w, lines := cmd.OutOrStdout(), newEncoder(cmd.OutOrStdout())
	header := form != outputJSON
	err := client.WatchEvents(cmd.Context(), func(e event.Event) error {
		if !wanted(&e) {
			return nil
		}
		doc := eventDocument(&e)
		if form == outputJSON {
			return lines.Encode(&doc)
		}
		if header {
			header = false
			if err := printWatched(w, "TIME (UTC)", "TYPE", "REASON", "POD", "MESSAGE"); err != nil {
				return err
			}
		}
		message := doc.Message
		if doc.Count > 1 {
			message = fmt.Sprintf("%s (x%d)", message, doc.Count)
		}
		return printWatched(w, doc.Last.Format(time.DateTime), doc.Type, doc.Reason, eventPod(&doc), message)
	})
	if cmd.Context().Err() != nil {
		return &ExitError{Code: codeInterrupted}
	}
	return err
}

// printWatched aligns what is usual; the rows to come are not known.
func printWatched(w io.Writer, at, kind, reason, of, message string) error {
	_, err := fmt.Fprintf(w, "%-19s  %-7s  %-16s  %-28s  %s\n", at, clean(kind), clean(reason), clean(of), clean(message))
	return err
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
