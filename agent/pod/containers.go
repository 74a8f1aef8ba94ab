package pod

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// ContainerType is the list of the pod spec that a container is in.
type ContainerType string

// The types of containers. A restartable init container, a sidecar, is of type
// Init.
const (
	Init      ContainerType = "init"
	Main      ContainerType = "main"
	Ephemeral ContainerType = "ephemeral"
)

// Containers yields all containers of the spec: init, main, ephemeral, each list
// in its order. The pointers point into the spec.
func Containers(s *v1.PodSpec) iter.Seq2[*v1.Container, ContainerType] {
	return func(yield func(*v1.Container, ContainerType) bool) {
		for i := range s.InitContainers {
			if !yield(&s.InitContainers[i], Init) {
				return
			}
		}
		for i := range s.Containers {
			if !yield(&s.Containers[i], Main) {
				return
			}
		}
		for i := range s.EphemeralContainers {
			if !yield(EphemeralAsContainer(&s.EphemeralContainers[i]), Ephemeral) {
				return
			}
		}
	}
}

// EphemeralAsContainer converts an ephemeral container to a container that shares its
// memory.
func EphemeralAsContainer(c *v1.EphemeralContainer) *v1.Container {
	return (*v1.Container)(&c.EphemeralContainerCommon)
}

// FindContainer returns the container with that name, as a pointer into the spec, or nil
// and "" if there is none. If an invalid spec has the name twice, it returns the
// first.
func FindContainer(s *v1.PodSpec, name string) (*v1.Container, ContainerType) {
	for c, kind := range Containers(s) {
		if c.Name == name {
			return c, kind
		}
	}
	return nil, ""
}

// ContainerStatuses yields the statuses of all containers of a pod: init, main, ephemeral.
// The pointers point into the status.
func ContainerStatuses(s *v1.PodStatus) iter.Seq[*v1.ContainerStatus] {
	return func(yield func(*v1.ContainerStatus) bool) {
		for _, list := range [...][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// FindContainerStatus returns the status of the container with that name, as a pointer into
// s, or nil if there is none.
func FindContainerStatus(s *v1.PodStatus, name string) *v1.ContainerStatus {
	for c := range ContainerStatuses(s) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// FindCondition returns the condition of a type, or nil if there is none.
func FindCondition(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// IsRestartableInit reports whether an init container is a sidecar.
func IsRestartableInit(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
