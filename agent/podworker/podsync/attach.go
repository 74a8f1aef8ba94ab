package podsync

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/image"
)

// attach adds the objects, Services, volumes and the target container to the input of the
// container's config.
func (st *starter) attach(ctx context.Context, in *criconfig.ContainerInput) (err error) {
	c := in.Container
	if in.ConfigMaps, in.Secrets, err = st.objectsOf(ctx, c); err != nil {
		return st.failed(ctx, c.Name, reasonConfigError, err)
	}
	if in.Services, err = st.services(ctx); err != nil {
		return st.failed(ctx, c.Name, reasonConfigError, err)
	}
	in.ReadEnvFile = func(volume, path string) ([]byte, error) { return st.Volumes.ReadEnvFile(st.pod, volume, path) }
	in.Volumes, in.ReadOnlyVolumes = st.volumes.Paths, st.volumes.ReadOnly
	in.RecursiveReadOnly = st.RecursiveReadOnly(st.state.handler)
	if in.TargetID, err = st.target(c.Name); err != nil {
		return st.failed(ctx, c.Name, reasonConfigError, err)
	}
	if in.ImageVolumes, err = st.imageVolumes(ctx, c); err != nil {
		return err
	}
	return st.subPaths(ctx, in)
}

// subPaths resolves the container's subPaths in their volumes and bind-mounts them, so
// that no container can replace them afterwards.
func (st *starter) subPaths(ctx context.Context, in *criconfig.ContainerInput) error {
	c := in.Container
	paths, err := criconfig.SubPaths(*in)
	if err != nil {
		return st.failed(ctx, c.Name, reasonConfigError, configError(err))
	}
	in.SubPaths = make(map[int]string, len(paths))
	for i, path := range paths {
		m := &c.VolumeMounts[i]
		resolved, err := st.Volumes.SubPath(ctx, st.pod, m.Name, st.volumes.Paths[m.Name], path, i, c.Name, m.ReadOnly || st.volumes.ReadOnly[m.Name])
		if err != nil {
			return st.failed(ctx, c.Name, reasonConfigError, err)
		}
		in.SubPaths[i] = resolved
	}
	return nil
}

// imageVolumes pulls the images that the container mounts as volumes.
func (st *starter) imageVolumes(ctx context.Context, c *v1.Container) (map[string]*runtimeapi.ImageSpec, error) {
	out := make(map[string]*runtimeapi.ImageSpec, len(st.volumes.Images))
	for i := range c.VolumeMounts {
		name := c.VolumeMounts[i].Name
		source := st.volumes.Images[name]
		if source == nil || out[name] != nil {
			continue
		}
		ref, _, err := st.pull(ctx, c.Name, &v1.Container{Name: name, Image: source.Reference, ImagePullPolicy: source.PullPolicy})
		if err != nil {
			return nil, err
		}
		out[name] = &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: source.Reference}
	}
	return out, nil
}

// pull ensures that the image of c is present. container is the name of the container
// that waits for it. img is nil if the image was pulled.
func (st *starter) pull(ctx context.Context, container string, c *v1.Container) (ref string, img *runtimeapi.Image, err error) {
	ref, img, err = st.Images.Ensure(ctx, st.pod, c, image.Options{Sandbox: st.sandbox, Secrets: st.pullSecrets(ctx), OnSlow: st.state.slot.release})
	if err != nil {
		if bad := new(image.Error); errors.As(err, &bad) {
			st.state.wait(container, bad.Reason, bad.Message)
		}
		return "", nil, inContainer(container, err)
	}
	return ref, img, nil
}

// target returns the ID of the container whose process namespace an ephemeral container
// shares, or "" if it targets none. It fails if the runtime has no container of the name.
func (st *starter) target(name string) (id string, err error) {
	for i := range st.pod.Spec.EphemeralContainers {
		e := &st.pod.Spec.EphemeralContainers[i]
		if e.Name != name || e.TargetContainerName == "" {
			continue
		}
		c := st.observed.Latest(e.TargetContainerName)
		if c == nil {
			return "", fmt.Errorf("unable to find target container %s", e.TargetContainerName)
		}
		return c.ID, nil
	}
	return "", nil
}

// configError returns the kubelet's wording of a container's configuration
// error, or the error itself.
func configError(err error) error {
	if bad := new(criconfig.ConfigError); errors.As(err, &bad) {
		return bad
	}
	return err
}
