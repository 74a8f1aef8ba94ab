package criconfig

import (
	"cmp"
	"math"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerInput is the input of ContainerConfig and SubPaths.
type ContainerInput struct {
	Pod       *v1.Pod
	Container *v1.Container // of the pod, of any kind
	Node      *Node

	// RestartCount is the number of earlier containers of that name.
	RestartCount int
	// Image is the image as ImageStatus returns it. The container runs with its
	// ID and its user. ImageRef, if set, replaces the ID.
	Image    *runtimeapi.Image
	ImageRef string

	// PodIPs are the sandbox's addresses, none on the host network.
	PodIPs []string
	// TargetID is the ID of the container whose PID namespace an ephemeral
	// container joins (targetContainerName); "" for none.
	TargetID string
	// Userns is the pod's user namespace if spec.hostUsers is false, the same
	// as the sandbox's.
	Userns *runtimeapi.UserNamespace
	// ExtraGroups are the same as in SandboxInput.
	ExtraGroups []int64

	// ConfigMaps and Secrets are the objects of the pod's namespace that
	// EnvRefs names, by name. A missing entry means that the object does not
	// exist.
	ConfigMaps map[string]*v1.ConfigMap
	Secrets    map[string]*v1.Secret
	// Services are at least those of ServiceNamespaces; none without an API
	// server.
	Services []*v1.Service
	// ReadEnvFile reads a file of a pod's volume for fileKeyRef. path is
	// relative to the volume and must not lead out of it. For a missing file it
	// returns an error that wraps fs.ErrNotExist. It must bound how much it reads, because
	// a container wrote the file. ContainerConfig and SubPaths call it synchronously. It
	// may be nil if no variable has such a source.
	ReadEnvFile func(volume, path string) ([]byte, error)

	// Volumes are the host paths of the pod's volumes, by name.
	Volumes map[string]string
	// SubPaths are the host paths of the volume mounts with a subPath or
	// subPathExpr, by index in volumeMounts: the paths that the function
	// SubPaths returned, resolved below the volume and pinned so that nothing
	// can move them.
	SubPaths map[int]string
	// ImageVolumes are the pulled images of the pod's image volumes, by the
	// volumes' names.
	ImageVolumes map[string]*runtimeapi.ImageSpec
	// ReadOnlyVolumes are the volumes that are mounted read-only whatever the
	// mount specifies: claims with readOnly. ConfigMap, Secret, downward API
	// and projected volumes are always read-only.
	ReadOnlyVolumes map[string]bool
	// RecursiveReadOnly reports whether the pod's runtime handler supports
	// recursive read-only mounts.
	RecursiveReadOnly bool
	// HostsFile is mounted at /etc/hosts, TerminationMessage at the container's
	// terminationMessagePath. Both are host paths; "" mounts nothing.
	HostsFile          string
	TerminationMessage string

	// Backoff is the crash loop backoff after this container's exit. Its
	// annotation stores it in whole seconds, rounded up.
	Backoff time.Duration
}

func (in *ContainerInput) podIPs() []string {
	if in.Pod.Spec.HostNetwork && len(in.PodIPs) == 0 {
		return in.Node.HostIPs
	}
	return in.PodIPs
}

// ContainerConfig builds the CRI config of one container. Its error wraps a ConfigError and
// names the container. It fails if a dependency is missing (a volume that is not set up, the
// source of a variable) or a setting is not possible.
func ContainerConfig(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	config, err := containerConfig(&in)
	if err != nil {
		return nil, wrapContainerError(in.Container.Name, err)
	}
	return config, nil
}

func containerConfig(in *ContainerInput) (*runtimeapi.ContainerConfig, error) {
	c := in.Container
	if in.RestartCount < 0 || in.RestartCount > math.MaxInt32 {
		return nil, configErrorf("restart count %d is out of range", in.RestartCount)
	}
	env, err := environmentOf(in)
	if err != nil {
		return nil, err
	}
	mounts, err := mountsOf(in, env)
	if err != nil {
		return nil, err
	}
	if err := verifyNonRoot(in); err != nil {
		return nil, err
	}
	security, err := securityContext(in)
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
		Image:       &runtimeapi.ImageSpec{Image: cmp.Or(in.ImageRef, in.Image.GetId()), UserSpecifiedImage: c.Image},
		Command:     ExpandAll(c.Command, env.lookup),
		Args:        ExpandAll(c.Args, env.lookup),
		WorkingDir:  c.WorkingDir,
		Envs:        env.keyValues(),
		Mounts:      mounts,
		Labels:      containerLabels(in.Pod, c),
		Annotations: annotations,
		LogPath:     LogPath(c.Name, in.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       containerResources(in.Pod, c, in.Node),
			SecurityContext: security,
		},
	}, nil
}

// stopSignal returns the signal that the runtime sends instead of the image's
// (KEP-4960). It is the runtime's default, 0, if the container names none or an
// unknown one.
func stopSignal(c *v1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*c.Lifecycle.StopSignal))
	return runtimeapi.Signal(runtimeapi.Signal_value["SIGNAL_"+name])
}
