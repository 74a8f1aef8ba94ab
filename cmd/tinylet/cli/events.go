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

// EventsDocument is the output of events -o json.
type EventsDocument struct {
	Events []EventDocument `json:"events"`
}

// EventDocument is an event.
type EventDocument struct {
	// Namespace, Pod and UID are empty for an event of the node.
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

type eventFlags struct {
	socket *string
	form   *output
	types  []string
	watch  bool
}

func (s *system) events() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events [POD] [flags]",
		Short: "List recent events of pods and of the node",
		Long: "List recent events of pods and of the node, the newest last. The agent keeps a few\n" +
			"hundred events in memory, of which a few dozen per pod.\n\n" +
			"POD is a prefix of NAME or NAMESPACE/NAME. With --watch and -o json, each event is\n" +
			"one document on one line.",
		Example: `  # List the warnings.
  tinylet events --types Warning

  # List and watch the events of the pods whose names begin with web.
  tinylet events web --watch`,
		Args: cobra.MaximumNArgs(1),
	}
	f := eventFlags{socket: addSocket(cmd), form: addOutput(cmd)}
	cmd.Flags().StringSliceVar(&f.types, "types", nil, "list only events of these `types`: Normal, Warning")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "list the events, then watch for new ones")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		match, err := f.filter(args)
		if err != nil {
			return err
		}
		client := local.NewClient(*f.socket)
		if f.watch {
			return watchEvents(cmd, client, match, *f.form)
		}
		all, err := client.Events(cmd.Context())
		if err != nil {
			return err
		}
		doc := EventsDocument{Events: eventDocuments(all, match)}
		if *f.form == outputJSON {
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

// filter returns the filter of events for the arguments and flags.
func (f *eventFlags) filter(args []string) (func(*event.Event) bool, error) {
	var types []string
	for _, requested := range f.types {
		i := slices.IndexFunc(eventTypes, func(known string) bool { return strings.EqualFold(known, requested) })
		if i < 0 {
			return nil, fmt.Errorf("--types is %q: it must be one or more of %s", requested, strings.Join(eventTypes, ", "))
		}
		types = append(types, eventTypes[i])
	}
	return func(e *event.Event) bool {
		return (len(args) == 0 || startsWith(e, args[0])) && (len(types) == 0 || slices.Contains(types, e.Type))
	}, nil
}

var eventTypes = []string{v1.EventTypeNormal, v1.EventTypeWarning}

// watchEvents prints each event on a line until the context of cmd ends.
func watchEvents(cmd *cobra.Command, client *local.Client, match func(*event.Event) bool, form output) error {
	w, lines := cmd.OutOrStdout(), newEncoder(cmd.OutOrStdout())
	header := form != outputJSON
	return client.WatchEvents(cmd.Context(), func(e event.Event) error {
		if !match(&e) {
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
}

// printWatched prints a row with fixed column widths, because later rows are
// unknown.
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

// printEvents prints the events in the given order, that of their last occurrence. It
// does not sort by time, because the clock may have been set in between. With an
// indent, the events belong to one pod and the column POD is omitted.
func (s *system) printEvents(w io.Writer, events []EventDocument, indent string) error {
	var t table
	row := func(cells ...string) {
		if indent != "" {
			cells = slices.Delete(cells, 3, 4)
		}
		t.add(cells...)
	}
	row(indent+"LAST SEEN", "TYPE", "REASON", "POD", "MESSAGE")
	for i := range events {
		e := &events[i]
		row(indent+s.seen(e), e.Type, e.Reason, eventPod(e), e.Message)
	}
	return t.write(w)
}

func eventPod(e *EventDocument) string {
	if e.Pod == "" {
		return "(node)"
	}
	return e.Namespace + "/" + e.Pod
}

// seen formats the age of an event and its count.
func (s *system) seen(e *EventDocument) string {
	last := s.age(e.Last)
	if e.Count < 2 {
		return last
	}
	return fmt.Sprintf("%s (x%d over %s)", last, e.Count, s.age(e.First))
}

// eventsOf returns the events of pod p: those with its UID, and those with its
// namespace and name that have no UID.
func eventsOf(all []event.Event, p *local.Pod) []EventDocument {
	return eventDocuments(all, func(e *event.Event) bool {
		return cmp.Or(e.Pod.UID, p.Pod.UID) == p.Pod.UID && e.Pod.Namespace == p.Pod.Namespace && e.Pod.Name == p.Pod.Name
	})
}

// eventDocuments returns the documents of the events that match, never nil.
func eventDocuments(all []event.Event, match func(*event.Event) bool) []EventDocument {
	out := []EventDocument{}
	for i := range all {
		if match(&all[i]) {
			out = append(out, eventDocument(&all[i]))
		}
	}
	return out
}
