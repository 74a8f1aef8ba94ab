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

	"github.com/tinylet/tinylet/agent/local"
	"github.com/tinylet/tinylet/agent/pod"
)

// DescriptionDocument is what describe -o json prints.
type DescriptionDocument struct {
	PodDocument
	// WorkerState is syncing, terminating or terminated.
	WorkerState string `json:"workerState"`
	// Object is the pod as the Kubernetes API has it, with its status.
	Object *v1.Pod         `json:"object"`
	Events []EventDocument `json:"events"`
}

func (s *system) describe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe POD [flags]",
		Short: "Tell everything about one pod",
		Long: "Tell everything about one pod: where it comes from, its containers and how they\n" +
			"ended, its conditions, volumes and events.\n\n" +
			"POD is a name, its beginning if that is unique, or NAMESPACE/NAME.",
		Example: `  # Why does it not start?
  tinylet describe web

  # Its object with the status, for a program.
  tinylet describe default/web-board -o json | jq .object.status`,
		Args: cobra.ExactArgs(1),
	}
	socket, form := addSocket(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client := local.NewClient(*socket)
		pods, err := client.Pods(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		p, err := choose(pods, args[0])
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
		if *form == outputJSON {
			return printJSON(cmd.OutOrStdout(), doc)
		}
		return s.printDescription(cmd.OutOrStdout(), p, &doc)
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
	now, up := s.now(), s.uptime()
	t.field("Name", p.Pod.Name)
	t.field("Namespace", p.Pod.Namespace)
	t.field("UID", string(p.Pod.UID))
	t.field("Source", pod.Source(p.Pod))
	t.field("Node", p.Pod.Spec.NodeName)
	t.field("Status", doc.Status)
	t.field("Phase", doc.Phase)
	t.field("Worker", p.WorkerState)
	t.field("Reason", strings.TrimSpace(status.Reason+" "+status.Message))
	if doc.StartTime != nil {
		t.field("Started", moment(*doc.StartTime, now, up))
	}
	var ips []string
	for _, ip := range status.PodIPs {
		ips = append(ips, ip.IP)
	}
	t.field("IP", strings.Join(ips, ", "))
	t.field("QoS class", string(status.QOSClass))
	t.field("Restart policy", string(p.Pod.Spec.RestartPolicy))
	t.field("Memory", memory(p.MemoryBytes))
	t.field("Labels", pairs(p.Pod.Labels))
}

func (s *system) describeContainer(t *table, p *v1.Pod, c *ContainerDocument) {
	now, up := s.now(), s.uptime()
	t.add("  " + containerName(c) + ":")
	t.nested("State", containerStatus(c))
	t.nested("Message", c.Message)
	if c.StartedAt != nil {
		t.nested("Started", moment(*c.StartedAt, now, up))
	}
	if c.FinishedAt != nil {
		t.nested("Ended", moment(*c.FinishedAt, now, up))
	}
	if last := lastEnded(p, c.Name); last != nil {
		t.nested("Before", fmt.Sprintf("%s (exit %d), ended %s", endReason(last), last.ExitCode, moment(last.FinishedAt.Time, now, up)))
		t.nested("", last.Message)
	}
	t.nested("Ready", yes(c.Ready))
	t.nested("Restarts", restarts(c.Restarts, c.LastRestart, now, up))
	t.nested("Image", c.Image)
	if spec := containerSpec(p, c.Name); spec != nil {
		t.nested("Command", strings.Join(append(slices.Clone(spec.Command), spec.Args...), " "))
		t.nested("Limits", resources(spec.Resources.Limits))
		t.nested("Requests", resources(spec.Resources.Requests))
		t.nested("Ports", ports(spec.Ports))
		t.nested("Mounts", mounts(spec.VolumeMounts))
	}
	t.nested("Memory", memory(c.MemoryBytes))
	t.nested("ID", c.ID)
	t.nested("Log", c.LogPath)
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

func describeVolumes(t *table, p *v1.Pod) {
	if len(p.Spec.Volumes) == 0 {
		return
	}
	t.add("Volumes:")
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		text := "other"
		switch {
		case v.HostPath != nil:
			text = "hostPath " + v.HostPath.Path
		case v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumMemory:
			text = "emptyDir in memory"
		case v.EmptyDir != nil:
			text = "emptyDir"
		case v.ConfigMap != nil:
			text = "configMap " + v.ConfigMap.Name
		case v.Secret != nil:
			text = "secret " + v.Secret.SecretName
		case v.Projected != nil:
			text = "projected"
		}
		t.add("  "+v.Name, text)
	}
}

// field adds a line about the pod; nothing where there is nothing to tell.
func (t *table) field(name, text string) {
	if text != "" && text != "-" {
		t.add(name+":", text)
	}
}

// nested adds a line about a container.
func (t *table) nested(name, text string) {
	if name != "" {
		name += ":"
	}
	if text != "" && text != "-" {
		t.add("    "+name, text)
	}
}

func moment(at, now time.Time, up time.Duration) string {
	return at.UTC().Format(time.DateTime) + " UTC, " + age(at, now, up) + " ago"
}

func lastEnded(p *v1.Pod, name string) *v1.ContainerStateTerminated {
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return list[i].LastTerminationState.Terminated
			}
		}
	}
	return nil
}

func containerSpec(p *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

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

func ports(list []v1.ContainerPort) string {
	var out []string
	for i := range list {
		text := fmt.Sprintf("%d/%s", list[i].ContainerPort, list[i].Protocol)
		if list[i].HostPort != 0 {
			text += fmt.Sprintf(" (host %d)", list[i].HostPort)
		}
		out = append(out, strings.TrimSuffix(text, "/"))
	}
	return strings.Join(out, ", ")
}

func mounts(list []v1.VolumeMount) string {
	var out []string
	for i := range list {
		text := list[i].MountPath + " from " + list[i].Name
		if list[i].ReadOnly {
			text += " (read-only)"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}
