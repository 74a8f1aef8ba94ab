package criconfig

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerInput is what a container's config is made of.
type ContainerInput struct {
	Pod       *v1.Pod
	Container *v1.Container // one of the pod's, of any kind
	Node      *Node

	// RestartCount is how many containers of that name there were before.
	RestartCount int
	// Image is what ImageStatus says of the image: its ID starts the
	// container and its user runs it. ImageRef, where set, starts it instead.
	Image    *runtimeapi.Image
	ImageRef string

	// PodIPs are the sandbox's addresses, none on the host's network.
	PodIPs []string
	// TargetID is the container whose processes an ephemeral container is to
	// see, the one with its targetContainerName; "" is none.
	TargetID string
	// Userns are the pod's users where spec.hostUsers is false, the same as
	// the sandbox's.
	Userns *runtimeapi.UserNamespace
	// ExtraGroups are those of SandboxInput.
	ExtraGroups []int64

	// ConfigMaps and Secrets are what EnvRefs names of the pod's namespace, by
	// name. What is not there does not exist.
	ConfigMaps map[string]*v1.ConfigMap
	Secrets    map[string]*v1.Secret
	// Services are at least those of ServiceNamespaces; none without an API
	// server.
	Services []*v1.Service
	// ReadEnvFile reads a file of one of the pod's volumes for fileKeyRef, by
	// a path in the volume that it must not leave; the error is
	// fs.ErrNotExist where there is none. How much it reads is its own to
	// bound: a container wrote the file. It is called at once, and may be nil
	// where no variable has such a source.
	ReadEnvFile func(volume, path string) ([]byte, error)

	// Volumes are the host paths of the pod's volumes, by name.
	Volumes map[string]string
	// SubPaths are the host paths of the volume mounts with a subPath or
	// subPathExpr, by index in volumeMounts: what SubPaths names, resolved
	// below the volume and held so that nothing can move it.
	SubPaths map[int]string
	// ImageVolumes are the images of the pod's image volumes, by the volumes'
	// names, as the runtime has pulled them.
	ImageVolumes map[string]*runtimeapi.ImageSpec
	// ReadOnlyVolumes are those that are mounted read-only whatever the mount
	// says: claims with readOnly. Volumes of configuration always are.
	ReadOnlyVolumes map[string]bool
	// RelabelVolumes are those beside the pod's own that get the container's
	// SELinux label: claims of local volumes.
	RelabelVolumes map[string]bool
	// RecursiveReadOnly says that the pod's runtime handler can mount so.
	RecursiveReadOnly bool
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

// Container is the config of one container. It fails with a ConfigError, in
// an error that names the field, on what the container asks for and cannot
// have: a volume that is not set up, a variable without its source.
func Container(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	config, err := containerConfig(&in)
	if err != nil {
		return nil, inContainer(in.Container.Name, err)
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
		StopSignal:  stopSignal(c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       containerResources(in.Pod, c, in.Node),
			SecurityContext: security,
		},
	}, nil
}
