package criconfig

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// SubPaths returns the paths in their volumes of the container's mounts with a
// subPath or subPathExpr, by index in volumeMounts. A subPathExpr is expanded
// with the container's variables. The caller, which sets up the volumes,
// resolves each path below its volume and passes the results in
// ContainerInput.SubPaths. The runtime resolves those of image volumes. SubPaths fails with a
// ConfigError if the environment cannot be resolved, if a variable is missing, or if a path is
// absolute or contains "..". A symbolic link in the volume can still lead out of it.
func SubPaths(in ContainerInput) (map[int]string, error) {
	c := in.Container
	has := func(m v1.VolumeMount) bool { return m.SubPath != "" || m.SubPathExpr != "" }
	if !slices.ContainsFunc(c.VolumeMounts, has) {
		return nil, nil
	}
	env, err := environmentOf(&in)
	if err != nil {
		return nil, wrapContainerError(c.Name, err)
	}
	out := map[int]string{}
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if in.ImageVolumes[m.Name] != nil {
			continue
		}
		sub, err := subPath(m, env)
		if err != nil {
			return nil, wrapContainerError(c.Name, fmt.Errorf("volumeMounts[%d]: %w", i, err))
		}
		if sub != "" {
			out[i] = sub
		}
	}
	return out, nil
}

// subPath returns the mount's path in its volume, "" for all of it. Unlike in a
// command, a variable that is missing or empty is an error, because the path
// would name another directory than intended (ExpandContainerVolumeMounts in
// pkg/kubelet/container/helpers.go).
func subPath(m *v1.VolumeMount, env *environment) (string, error) {
	path := m.SubPath
	if m.SubPathExpr != "" {
		var missing []string
		path = expand(m.SubPathExpr, func(name string) (string, bool) {
			value := env.values[name]
			if value == "" {
				missing = append(missing, name)
			}
			return value, true
		})
		if len(missing) > 0 {
			slices.Sort(missing)
			return "", configErrorf("missing value for %s", strings.Join(unique(missing), ", "))
		}
	}
	if strings.HasPrefix(path, "/") {
		return "", configErrorf("error SubPath `%s` must not be an absolute path", path)
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return "", configErrorf("unable to provision SubPath `%s`: must not contain '..'", path)
	}
	return path, nil
}
