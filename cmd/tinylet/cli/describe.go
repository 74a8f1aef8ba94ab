package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/local"
)

// DescriptionDocument is the output of describe -o json.
type DescriptionDocument struct {
	PodDocument
	// WorkerState is syncing, terminating or terminated.
	WorkerState string `json:"workerState"`
	// Object is the pod of the Kubernetes API, with its status.
	Object *v1.Pod         `json:"object"`
	Events []EventDocument `json:"events"`
}

func (s *system) describe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe POD [flags]",
		Short: "Show the details of one pod",
		Long: "Show the details of one pod: its config source, its containers and their last\n" +
			"states, its conditions, volumes and events.\n\n" +
			"POD is NAME, NAMESPACE/NAME, or a prefix of either that only one pod has.",
		Example: `  # Show why a pod does not start.
  tinylet describe web

  # Print the status of the pod object for a program.
  tinylet describe default/web-board -o json | jq .object.status`,
		Args: cobra.ExactArgs(1),
	}
	socket, form := addSocket(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client := local.NewClient(*socket)
		p, err := choosePod(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		all, err := client.Events(cmd.Context())
		if err != nil {
			return err
		}
		doc := DescriptionDocument{
			PodDocument: podDocument(p), WorkerState: p.WorkerState,
			Object: p.Pod, Events: eventsOf(all, p),
		}
		return form.print(cmd.OutOrStdout(), doc, func(w io.Writer) error { return s.printDescription(w, p, &doc) })
	}
	return command(cmd)
}

func (s *system) printDescription(w io.Writer, p *local.Pod, doc *DescriptionDocument) error {
	var t table
	s.describePod(&t, p, doc)
	t.add("Containers:")
	for i := range doc.Containers {
		s.describeContainer(&t, p.Pod, &doc.Containers[i])
	}
	describeConditions(&t, p.Pod)
	describeGates(&t, p.Pod)
	describeVolumes(&t, p.Pod)
	if err := t.write(w); err != nil {
		return err
	}
	if len(doc.Events) == 0 {
		_, err := fmt.Fprintln(w, "Events:  none")
		return err
	}
	if _, err := fmt.Fprintln(w, "Events:"); err != nil {
		return err
	}
	return s.printEvents(w, doc.Events, "  ")
}

func (s *system) describePod(t *table, p *local.Pod, doc *DescriptionDocument) {
	status := &p.Pod.Status
	t.field("Name", p.Pod.Name)
	t.field("Namespace", p.Pod.Namespace)
	t.field("UID", string(p.Pod.UID))
	t.field("Config source", pod.Source(p.Pod))
	t.field("Node", p.Pod.Spec.NodeName)
	t.field("Status", doc.Status)
	t.field("Phase", doc.Phase)
	t.field("Worker", p.WorkerState)
	t.field("Reason", strings.TrimSpace(status.Reason+" "+status.Message))
	t.field("Started", s.moment(doc.StartTime))
	var ips []string
	for _, ip := range status.PodIPs {
		ips = append(ips, ip.IP)
	}
	t.field("IP", strings.Join(ips, ", "))
	t.field("QoS class", string(status.QOSClass))
	t.field("Priority", priority(&p.Pod.Spec))
	t.field("Restart policy", string(p.Pod.Spec.RestartPolicy))
	t.field("Grace period", seconds(p.Pod.Spec.TerminationGracePeriodSeconds))
	t.field("Deadline", seconds(p.Pod.Spec.ActiveDeadlineSeconds))
	t.field("Host namespaces", hostNamespaces(&p.Pod.Spec))
	if users := p.Pod.Spec.HostUsers; users != nil && !*users {
		t.field("User namespace", "yes")
	}
	t.field("Runtime class", ptr.Deref(p.Pod.Spec.RuntimeClassName, ""))
	t.field("Service account", p.Pod.Spec.ServiceAccountName)
	t.field("Memory", memory(p.MemoryBytes))
	t.field("Labels", pairs(p.Pod.Labels))
}

func priority(spec *v1.PodSpec) string {
	var parts []string
	if spec.Priority != nil {
		parts = append(parts, fmt.Sprint(*spec.Priority))
	}
	if spec.PriorityClassName != "" {
		parts = append(parts, "("+spec.PriorityClassName+")")
	}
	return strings.Join(parts, " ")
}

// hostNamespaces lists the namespaces that the pod shares with the node.
func hostNamespaces(spec *v1.PodSpec) string {
	var parts []string
	for _, shared := range []struct {
		name string
		set  bool
	}{{"network", spec.HostNetwork}, {"PID", spec.HostPID}, {"IPC", spec.HostIPC}} {
		if shared.set {
			parts = append(parts, shared.name)
		}
	}
	return strings.Join(parts, ", ")
}

// seconds formats a number of seconds. It returns "" for nil.
func seconds(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%ds", *n)
}

func describeConditions(t *table, p *v1.Pod) {
	if len(p.Status.Conditions) == 0 {
		return
	}
	t.add("Conditions:")
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		t.add("  "+string(c.Type), strings.TrimSpace(string(c.Status)+" "+c.Reason+" "+c.Message))
	}
}

// describeGates adds the readiness gates and the status of their conditions.
func describeGates(t *table, p *v1.Pod) {
	if len(p.Spec.ReadinessGates) == 0 {
		return
	}
	t.add("Readiness gates:")
	for i := range p.Spec.ReadinessGates {
		kind, status := p.Spec.ReadinessGates[i].ConditionType, "not set"
		if c := pod.FindCondition(p.Status.Conditions, kind); c != nil {
			status = string(c.Status)
		}
		t.add("  "+string(kind), status)
	}
}

// field adds a line about the pod. It adds nothing for "" and "-".
func (t *table) field(name, text string) {
	if text != "" && text != "-" {
		t.add(name+":", text)
	}
}

// list adds the lines about a container that belong to name.
func (t *table) list(name string, lines []string) {
	for _, line := range lines {
		t.nested(name, line)
		name = ""
	}
}

// nested adds a line about a container. It adds nothing for "" and "-".
func (t *table) nested(name, text string) {
	if name != "" {
		name += ":"
	}
	if text != "" && text != "-" {
		t.add("    "+name, text)
	}
}

// moment formats a time with its age. It returns "" for nil.
func (s *system) moment(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.DateTime) + " UTC, " + s.age(*at) + " ago"
}

// pairs formats a map as sorted key=value pairs.
func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ", ")
}

func resources(list v1.ResourceList) string {
	m := map[string]string{}
	for name, quantity := range list {
		m[string(name)] = quantity.String()
	}
	return pairs(m)
}
