package criconfig

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// SupportsFieldRef says whether a container's environment can have that
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

// SupportsResourceFieldRef says whether a container's environment can have
// that resource of its own.
func SupportsResourceFieldRef(name string) bool {
	_, _, ok := resourceOf(name)
	return ok
}

func fieldValue(in *ContainerInput, ref *v1.ObjectFieldSelector) (string, error) {
	p := in.Pod
	if field, key, ok := subscript(ref.FieldPath); ok {
		if field == "metadata.labels" {
			return p.Labels[key], nil
		}
		return p.Annotations[key], nil
	}
	switch ref.FieldPath {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "spec.nodeName":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return addresses(ref.FieldPath, in.Node.HostIPs, "the node has no address yet")
	case "status.podIP", "status.podIPs":
		return addresses(ref.FieldPath, in.podIPs(), "the pod has no address yet")
	}
	return "", fmt.Errorf("fieldRef: field %q is not supported", ref.FieldPath)
}

// addresses is the first address, or all where the field's name is plural.
func addresses(path string, all []string, none string) (string, error) {
	if len(all) == 0 {
		return "", fmt.Errorf("fieldRef %s: %s", path, none)
	}
	if strings.HasSuffix(path, "IPs") {
		return strings.Join(all, ","), nil
	}
	return all[0], nil
}

// subscript reads metadata.labels['key'] and metadata.annotations['key'].
func subscript(path string) (field, key string, ok bool) {
	field, rest, ok := strings.Cut(path, "['")
	if !ok || (field != "metadata.labels" && field != "metadata.annotations") {
		return "", "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return field, key, ok && key != ""
}

// resourceValue is a request or limit of a container, divided and rounded
// up. A limit that is not set is what the node has.
func resourceValue(in *ContainerInput, ref *v1.ResourceFieldSelector) (string, error) {
	limit, name, ok := resourceOf(ref.Resource)
	if !ok {
		return "", fmt.Errorf("resourceFieldRef: resource %q is not supported", ref.Resource)
	}
	c := in.Container
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		if c = containerNamed(in.Pod, ref.ContainerName); c == nil {
			return "", fmt.Errorf("resourceFieldRef: the pod has no container %q", ref.ContainerName)
		}
	}
	q := c.Resources.Requests[name]
	if limit {
		if q = c.Resources.Limits[name]; q.IsZero() {
			q = in.Node.Allocatable[name]
		}
	}
	return quotient(q, ref.Divisor, name), nil
}

func resourceOf(path string) (limit bool, name v1.ResourceName, ok bool) {
	kind, rest, found := strings.Cut(path, ".")
	name = v1.ResourceName(rest)
	known := name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
	limit = kind == "limits"
	return limit, name, found && known && (limit || kind == "requests")
}

// quotient is q / divisor rounded up; a divisor of 0 is 1. CPU counts in
// thousandths, all else in whole units (pkg/api/v1/resource/helpers.go).
func quotient(q, divisor resource.Quantity, name v1.ResourceName) string {
	if divisor.IsZero() {
		divisor = *resource.NewQuantity(1, resource.DecimalSI)
	}
	a, b := whole(q), whole(divisor)
	if name == v1.ResourceCPU {
		a, b = milli(q), milli(divisor)
	}
	b = max(b, 1)
	if a%b > 0 {
		return strconv.FormatInt(a/b+1, 10)
	}
	return strconv.FormatInt(a/b, 10)
}

func containerNamed(p *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
