package criconfig

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// SupportsFieldRef reports whether a container's environment can refer to that
// field of its pod.
func SupportsFieldRef(path string) bool {
	if _, _, ok := subscript(path); ok {
		return true
	}
	switch path {
	case "metadata.name", "metadata.namespace", "metadata.uid",
		"spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs":
		return true
	}
	return false
}

// FieldValue returns a field of the pod as a variable or a file of a downward API volume has
// it. podIPs are the sandbox's addresses, or the node's on the host network. metadata.labels
// and metadata.annotations without a key return lines key="value" in the order of the keys
// (pkg/fieldpath). It fails with a ConfigError if the pod has no such field, if a key is
// invalid, or if an address is not known yet. A label or annotation that does not exist is
// empty.
func FieldValue(p *v1.Pod, n *Node, podIPs []string, path string) (string, error) {
	if field, key, ok := subscript(path); ok {
		return metadataValue(p, path, field, key)
	}
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "metadata.labels":
		return quotedLines(p.Labels), nil
	case "metadata.annotations":
		return quotedLines(p.Annotations), nil
	case "spec.nodeName", "spec.host": // spec.host is the field's former name
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return addresses(path, n.HostIPs, "the node has no address yet")
	case "status.podIP", "status.podIPs":
		return addresses(path, onePerFamily(podIPs, n.HostIPs), "the pod has no address yet")
	}
	return "", configErrorf("field label not supported: %s", path)
}

// addresses returns the first address, or all of them, separated by commas, if
// the field's name is plural.
func addresses(path string, all []string, none string) (string, error) {
	if len(all) == 0 {
		return "", configErrorf("fieldRef %s: %s", path, none)
	}
	if strings.HasSuffix(path, "IPs") {
		return strings.Join(all, ","), nil
	}
	return all[0], nil
}

// onePerFamily returns the first address of the node's primary family, then the
// first of the other family (sortPodIPs in pkg/kubelet/kubelet_pods.go).
func onePerFamily(podIPs, hostIPs []string) []string {
	primary6 := len(hostIPs) > 0 && strings.Contains(hostIPs[0], ":")
	var out []string
	for _, want6 := range []bool{primary6, !primary6} {
		for _, s := range podIPs {
			ip, err := netip.ParseAddr(s)
			if ip = ip.Unmap(); err == nil && ip.Is6() == want6 {
				out = append(out, ip.String())
				break
			}
		}
	}
	return out
}

func metadataValue(p *v1.Pod, path, field, key string) (string, error) {
	list, name := p.Labels, key
	if field == "metadata.annotations" {
		list, name = p.Annotations, strings.ToLower(key)
	}
	if bad := validation.IsQualifiedName(name); len(bad) > 0 {
		return "", configErrorf("invalid key subscript in %s: %s", path, strings.Join(bad, ";"))
	}
	return list[key], nil
}

// subscript parses metadata.labels['key'] and metadata.annotations['key'].
func subscript(path string) (field, key string, ok bool) {
	field, rest, ok := strings.Cut(path, "['")
	if !ok || (field != "metadata.labels" && field != "metadata.annotations") {
		return "", "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return field, key, ok && key != ""
}

func quotedLines(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%s", key, strconv.Quote(m[key])))
	}
	return strings.Join(lines, "\n")
}
