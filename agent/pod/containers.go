package pod

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// Kind is which of a pod's lists a container stands in.
type Kind uint8

// The kinds of containers. A restartable init container, a sidecar, is of
// kind Init.
const (
	Init Kind = iota + 1
	Main
	Ephemeral
)

func (k Kind) String() string {
	switch k {
	case Init:
		return "init"
	case Main:
		return "main"
	case Ephemeral:
		return "ephemeral"
	}
	return "unknown"
}

// Containers are all containers of the spec: init, main, ephemeral, each list
// in its order. They point into the spec.
func Containers(s *v1.PodSpec) iter.Seq2[*v1.Container, Kind] {
	return func(yield func(*v1.Container, Kind) bool) {
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
			if !yield(EphemeralOf(&s.EphemeralContainers[i]), Ephemeral) {
				return
			}
		}
	}
}

// EphemeralOf is an ephemeral container as a container, of the same memory.
func EphemeralOf(c *v1.EphemeralContainer) *v1.Container {
	return (*v1.Container)(&c.EphemeralContainerCommon)
}

// Find is the container of that name, pointing into the spec; nil and 0 if
// there is none. Of a name that a broken spec has twice it is the first.
func Find(s *v1.PodSpec, name string) (*v1.Container, Kind) {
	for c, kind := range Containers(s) {
		if c.Name == name {
			return c, kind
		}
	}
	return nil, 0
}

// Statuses are those of all containers of a pod: init, main, ephemeral. They
// point into the status.
func Statuses(s *v1.PodStatus) iter.Seq[*v1.ContainerStatus] {
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

// StatusOf is the status of the container of that name, pointing into s; nil
// if there is none.
func StatusOf(s *v1.PodStatus, name string) *v1.ContainerStatus {
	for c := range Statuses(s) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// IsRestartableInit says whether an init container is a sidecar.
func IsRestartableInit(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
