package criconfig

import (
	"fmt"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerInput is what a container's config is made of.
type ContainerInput struct {
	Pod       *v1.Pod
	Container *v1.Container // one of the pod's
	Node      *Node

	// RestartCount is how many containers of that name there were before.
	RestartCount int
	// Image is what ImageStatus says of the image: its ID starts the
	// container and its user runs it. ImageRef, where set, starts it instead.
	Image    *runtimeapi.Image
	ImageRef string

	// PodIPs are the sandbox's addresses, none on the host's network.
	PodIPs []string
	// Volumes are the host paths of the pod's volumes, by name.
	Volumes map[string]string
	// HostsFile is mounted at /etc/hosts, TerminationMessage at the
	// container's terminationMessagePath; both are on the host, and "" mounts
	// nothing.
	HostsFile          string
	TerminationMessage string

	// Backoff is how long to wait after this container's end, kept in its
	// annotation in whole seconds, rounded up.
	Backoff time.Duration
}

func (in *ContainerInput) podIPs() []string {
	if in.Pod.Spec.HostNetwork && len(in.PodIPs) == 0 {
		return in.Node.HostIPs
	}
	return in.PodIPs
}

func (in *ContainerInput) imageRef() string {
	if in.ImageRef != "" {
		return in.ImageRef
	}
	return in.Image.GetId()
}

// Container is the config of one container. It fails, naming the field, on
// what the container asks for and cannot have: a volume that is not set up,
// a variable without its source.
func Container(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	config, err := containerConfig(&in)
	if err != nil {
		return nil, fmt.Errorf("config of container %q: %w", in.Container.Name, err)
	}
	return config, nil
}

func containerConfig(in *ContainerInput) (*runtimeapi.ContainerConfig, error) {
	c := in.Container
	if in.RestartCount < 0 || in.RestartCount > math.MaxInt32 {
		return nil, fmt.Errorf("restart count %d is out of range", in.RestartCount)
	}
	env, err := environmentOf(in)
	if err != nil {
		return nil, err
	}
	mounts, err := mountsOf(in)
	if err != nil {
		return nil, err
	}
	annotations, err := containerAnnotations(in)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{
			Name:    c.Name,
			Attempt: uint32(in.RestartCount),
		},
		Image:       &runtimeapi.ImageSpec{Image: in.imageRef(), UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command, env.lookup),
		Args:        expandAll(c.Args, env.lookup),
		WorkingDir:  c.WorkingDir,
		Envs:        env.keyValues(),
		Mounts:      mounts,
		Labels:      containerLabels(in.Pod, c),
		Annotations: annotations,
		LogPath:     LogPath(c.Name, in.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       containerResources(in.Pod, c, in.Node),
			SecurityContext: securityContext(in),
		},
	}, nil
}

// Paths of /proc and /sys that say too much or do too much for a container
// (pkg/securitycontext/util.go).
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{
		"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
	}
)

// securityContext is that of a container which asks for nothing: the image's
// user, the runtime's capabilities.
func securityContext(in *ContainerInput) *runtimeapi.LinuxContainerSecurityContext {
	sc := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(in.Pod),
		MaskedPaths:      slices.Concat(maskedPaths, in.Node.MaskedPaths),
		ReadonlyPaths:    slices.Clone(readonlyPaths),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
	}
	if in.Node.SeccompDefault {
		sc.Seccomp.ProfileType = runtimeapi.SecurityProfile_RuntimeDefault
	}
	switch {
	case in.Image.GetUid() != nil:
		sc.RunAsUser = &runtimeapi.Int64Value{Value: in.Image.GetUid().GetValue()}
	case in.Image.GetUsername() != "":
		sc.RunAsUsername = in.Image.GetUsername()
	default:
		sc.RunAsUser = &runtimeapi.Int64Value{}
	}
	return sc
}
