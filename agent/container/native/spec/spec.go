package spec

import (
	"cmp"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rootfs is the path of the root filesystem, relative to the bundle.
const rootfs = "rootfs"

// builder has the spec under construction and what several steps read.
type builder struct {
	*Container
	spec     *specs.Spec
	security *runtimeapi.LinuxContainerSecurityContext
}

// Build returns the OCI spec of a container. Its error names the container and the field that
// is at fault. It wraps ErrRROUnsupported or ErrImageVolumeMountFailed of CRI's errors where
// CRI specifies them, and the errors of Node's functions.
func Build(c *Container) (*specs.Spec, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("build OCI spec of container %q: %w", c.Config.GetMetadata().GetName(), err)
	}
	b := &builder{Container: c, spec: base(), security: c.Config.GetLinux().GetSecurityContext()}
	// The order is containerd's where steps depend on each other: mounts need the cgroup
	// namespace, privileged containers replace earlier settings, seccomp needs the
	// capabilities.
	for _, step := range []func() error{
		b.refuse, b.process, b.namespaces, b.mounts, b.paths, b.devices, b.capabilities,
		b.privileged, b.resources, b.user, b.apparmor, b.seccomp, b.annotations,
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("build OCI spec of container %q: %w", c.Config.GetMetadata().GetName(), err)
		}
	}
	return b.spec, nil
}

// base returns the spec before the configs are applied: populateDefaultUnixSpec in
// pkg/oci/spec.go without what the CRI plugin removes again.
func base() *specs.Spec {
	return &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: rootfs},
		Process: &specs.Process{
			Capabilities: &specs.LinuxCapabilities{},
		},
		Linux: &specs.Linux{
			Resources: &specs.LinuxResources{
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: anyAccess}},
			},
		},
	}
}

// The annotations for tools that read specs (internal/cri/annotations/annotations.go).
const (
	annotationType      = "io.kubernetes.cri.container-type"
	annotationSandbox   = "io.kubernetes.cri.sandbox-id"
	annotationNamespace = "io.kubernetes.cri.sandbox-namespace"
	annotationUID       = "io.kubernetes.cri.sandbox-uid"
	annotationPod       = "io.kubernetes.cri.sandbox-name"
	annotationName      = "io.kubernetes.cri.container-name"
	annotationImage     = "io.kubernetes.cri.image-name"
)

func (b *builder) annotations() error {
	pod := b.Sandbox.GetMetadata()
	b.spec.Annotations = map[string]string{
		annotationType:      "container",
		annotationSandbox:   b.SandboxID,
		annotationNamespace: pod.GetNamespace(),
		annotationUID:       pod.GetUid(),
		annotationPod:       pod.GetName(),
		annotationName:      b.Config.GetMetadata().GetName(),
		annotationImage:     cmp.Or(b.Config.GetImage().GetUserSpecifiedImage(), b.ImageName),
	}
	return nil
}
