package nodestatus

import (
	goruntime "runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Update returns the current state of an existing node: its status, its platform
// labels, and the annotation that passes --node-ip to an external cloud provider.
// changed reports whether more than heartbeats differs; then the node should be
// sent before the next report is due (updateNode in
// pkg/kubelet/kubelet_node_status.go).
//
// The error names what could not be determined and therefore did not change. The
// caller should log it and send the node anyway.
func Update(existing *v1.Node, in *Inputs) (n *v1.Node, changed bool, err error) {
	n = existing.DeepCopy()
	for label, value := range map[string]string{v1.LabelOSStable: goruntime.GOOS, v1.LabelArchStable: goruntime.GOARCH} {
		changed = set(&n.Labels, label, value) || changed
	}
	err = fill(n, in)
	changed = changed || n.Annotations[annotationProvidedIP] != existing.Annotations[annotationProvidedIP] ||
		Changed(&existing.Status, &n.Status)
	return n, changed, err
}

// set sets a label or an annotation, and reports whether that changed it.
func set(m *map[string]string, key, value string) (changed bool) {
	if had, ok := (*m)[key]; ok && had == value {
		return false
	}
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[key] = value
	return true
}

// fill sets what changes while a node is registered.
func fill(n *v1.Node, in *Inputs) error {
	provideIP(n, in)
	status, err := Status(&n.Status, in)
	n.Status = status
	return err
}

// provideIP sets the annotation that passes --node-ip to an external cloud
// provider. It removes the annotation if there is no such provider or if the first
// node IP is not a specific address. With invalid node IPs it changes nothing.
func provideIP(n *v1.Node, in *Inputs) {
	ips := specified(in.Config.NodeIPs)
	if checkNodeIPs(ips, in.HostIPs) != nil {
		return
	}
	if in.Config.CloudProvider != cloudExternal || !firstSpecified(in.Config.NodeIPs) {
		delete(n.Annotations, annotationProvidedIP)
		return
	}
	texts := make([]string, len(ips))
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	set(&n.Annotations, annotationProvidedIP, strings.Join(texts, ","))
}
