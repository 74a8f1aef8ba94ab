package criconfig

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// SupportsResourceFieldRef reports whether a container's environment can refer
// to that resource.
func SupportsResourceFieldRef(name string) bool {
	_, _, ok := resourceOf(name)
	return ok
}

// ResourceValue returns a request or limit of a container or an init container as a downward
// API volume has it: divided by the divisor and rounded up. A limit that is not set defaults
// to node allocatable, except for huge pages. It fails with a ConfigError if there is no such
// container or resource.
func ResourceValue(p *v1.Pod, containerName string, ref *v1.ResourceFieldSelector, n *Node) (string, error) {
	c, _ := containerNamed(p, containerName)
	if c == nil {
		return "", configErrorf("container %s not found", containerName)
	}
	return resourceValue(c, ref, n.Allocatable)
}

// envResourceValue is ResourceValue for an environment variable. A limit that
// is not set defaults to the pod-level limit of CPU or memory, then to node allocatable. The
// limit of an init container that the reference names defaults to 0
// (defaultPodLimitsForDownwardAPI in pkg/kubelet/kubelet_resources.go).
func envResourceValue(in *ContainerInput, ref *v1.ResourceFieldSelector) (string, error) {
	defaults := in.Node.Allocatable
	if own := pod.PodLevelResources(in.Pod); own != nil {
		defaults = defaults.DeepCopy()
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if _, ok := defaults[name]; ok && pod.Value(own.Limits[name]) > 0 {
				defaults[name] = own.Limits[name]
			}
		}
	}
	if ref.ContainerName == "" {
		return resourceValue(in.Container, ref, defaults)
	}
	c, kind := containerNamed(in.Pod, ref.ContainerName)
	if c == nil {
		return "", configErrorf("container %s not found", ref.ContainerName)
	}
	if kind == pod.Init {
		defaults = nil
	}
	return resourceValue(c, ref, defaults)
}

func resourceValue(c *v1.Container, ref *v1.ResourceFieldSelector, defaults v1.ResourceList) (string, error) {
	limit, name, ok := resourceOf(ref.Resource)
	if !ok {
		return "", configErrorf("unsupported container resource : %s", ref.Resource)
	}
	q := c.Resources.Requests[name]
	if limit {
		// Huge pages have no default limit.
		if q = c.Resources.Limits[name]; q.IsZero() && !pod.IsHugePages(name) {
			q = defaults[name]
		}
	}
	return divideRoundingUp(q, ref.Divisor, name), nil
}

func resourceOf(path string) (limit bool, name v1.ResourceName, ok bool) {
	kind, rest, found := strings.Cut(path, ".")
	name = v1.ResourceName(rest)
	known := name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage || pod.IsHugePages(name)
	limit = kind == "limits"
	return limit, name, found && known && (limit || kind == "requests")
}

// divideRoundingUp returns q / divisor, rounded up; a divisor of 0 counts as 1. CPU is
// computed in thousandths, all else in whole units
// (pkg/api/v1/resource/helpers.go).
func divideRoundingUp(q, divisor resource.Quantity, name v1.ResourceName) string {
	if divisor.IsZero() {
		divisor = *resource.NewQuantity(1, resource.DecimalSI)
	}
	a, b := pod.Value(q), pod.Value(divisor)
	if name == v1.ResourceCPU {
		a, b = pod.MilliValue(q), pod.MilliValue(divisor)
	}
	b = max(b, 1)
	if a%b > 0 {
		return strconv.FormatInt(a/b+1, 10)
	}
	return strconv.FormatInt(a/b, 10)
}

// containerNamed returns one of the pod's containers or init containers, or
// nil.
func containerNamed(p *v1.Pod, name string) (*v1.Container, pod.ContainerType) {
	c, kind := pod.FindContainer(&p.Spec, name)
	if kind == pod.Ephemeral {
		return nil, "" // ephemeral containers have no resources
	}
	return c, kind
}
