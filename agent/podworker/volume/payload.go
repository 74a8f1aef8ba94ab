package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/source/objects"
)

// defaultMode is the mode of files for which the pod sets none.
const defaultMode int32 = 0o644

// content is one file of a config volume.
type content struct {
	data []byte
	mode fs.FileMode
	user int // -1 means root, the user that creates the file
}

// payload has the files of a config volume by their clean paths.
type payload map[string]content

// collector collects the payload of one volume.
type collector struct {
	*setup
	files    payload
	mode     int32
	explicit map[string]struct{} // paths that a source names explicitly
	err      error               // the errors of all sources
}

// collect collects the files of a config volume.
func (s *setup) collect(ctx context.Context, source *v1.VolumeSource) (payload, error) {
	c := &collector{setup: s, files: make(payload)}
	switch {
	case source.ConfigMap != nil:
		v := source.ConfigMap
		c.mode = ptr.Deref(v.DefaultMode, defaultMode)
		c.add(c.configMap(ctx, v.Name, v.Items, v.Optional))
	case source.Secret != nil:
		v := source.Secret
		c.mode = ptr.Deref(v.DefaultMode, defaultMode)
		c.add(c.secret(ctx, v.SecretName, v.Items, v.Optional))
	case source.DownwardAPI != nil:
		c.mode = ptr.Deref(source.DownwardAPI.DefaultMode, defaultMode)
		c.add(c.downward(source.DownwardAPI.Items))
	case source.Projected != nil:
		c.mode = ptr.Deref(source.Projected.DefaultMode, defaultMode)
		c.explicit = make(map[string]struct{})
		for i := range source.Projected.Sources {
			c.add(c.projection(ctx, &source.Projected.Sources[i]))
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.files, checkPayload(c.files)
}

func (c *collector) add(err error) { c.err = joinErrors(c.err, ", ", err) }

// projection adds one source of a projected volume. If two sources have the same
// path, the later one is used. If both name it explicitly, except as the path of a token,
// that is an error, as on an API server.
func (c *collector) projection(ctx context.Context, source *v1.VolumeProjection) error {
	switch {
	case source.Secret != nil:
		return c.secret(ctx, source.Secret.Name, source.Secret.Items, source.Secret.Optional)
	case source.ConfigMap != nil:
		return c.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional)
	case source.DownwardAPI != nil:
		return c.downward(source.DownwardAPI.Items)
	case source.ServiceAccountToken != nil:
		return c.token(ctx, source.ServiceAccountToken)
	case source.ClusterTrustBundle != nil:
		return c.trustBundle(ctx, source.ClusterTrustBundle)
	}
	return unsupported("projected." + KindOf(source))
}

// explicitPath records a path that the pod names explicitly. It returns an error
// if the path is a duplicate.
func (c *collector) explicitPath(path string) error {
	if c.explicit == nil {
		return nil
	}
	if _, twice := c.explicit[path]; twice {
		return fmt.Errorf("conflicting duplicate paths: %q", path)
	}
	c.explicit[path] = struct{}{}
	return nil
}

func (c *collector) put(path string, data []byte, mode int32) error {
	if err := checkPath(path); err != nil {
		return err
	}
	c.files[filepath.Clean(path)] = content{data: data, mode: fileMode(mode), user: -1}
	return nil
}

// object returns an object of the pod's namespace, or an empty one if it is missing and
// optional.
func object[T any](ctx context.Context, c *collector, get func(o objects.Reader, ctx context.Context, namespace, name string) (*T, error), name string, optional bool) (*T, error) {
	found, err := get(c.in.Objects, ctx, c.pod.Namespace, name)
	switch {
	case err == nil:
		return found, nil
	case optional && apierrors.IsNotFound(err):
		return new(T), nil
	}
	return nil, c.missing(err)
}

func (c *collector) configMap(ctx context.Context, name string, items []v1.KeyToPath, optional *bool) error {
	may := ptr.Deref(optional, false)
	m, err := object(ctx, c, objects.Reader.ConfigMap, name, may)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		for key, value := range m.Data {
			if err := c.put(key, bytesOf(value), c.mode); err != nil {
				return err
			}
		}
		return c.all(m.BinaryData)
	}
	return c.items(items, may, "configmap references non-existent config key: ", func(key string) ([]byte, bool) {
		if value, ok := m.Data[key]; ok {
			return bytesOf(value), true
		}
		value, ok := m.BinaryData[key]
		return value, ok
	})
}

func (c *collector) secret(ctx context.Context, name string, items []v1.KeyToPath, optional *bool) error {
	may := ptr.Deref(optional, false)
	s, err := object(ctx, c, objects.Reader.Secret, name, may)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return c.all(s.Data)
	}
	return c.items(items, may, "references non-existent secret key: ", func(key string) ([]byte, bool) {
		value, ok := s.Data[key]
		return value, ok
	})
}

func (c *collector) all(data map[string][]byte) error {
	for key, value := range data {
		if err := c.put(key, value, c.mode); err != nil {
			return err
		}
	}
	return nil
}

// items adds the keys that the pod names. If the object is optional, missing keys
// are omitted.
func (c *collector) items(items []v1.KeyToPath, optional bool, complaint string, value func(key string) ([]byte, bool)) error {
	for i := range items {
		item := &items[i]
		if err := c.explicitPath(item.Path); err != nil {
			return err
		}
		data, ok := value(item.Key)
		if !ok && optional {
			continue
		}
		if !ok {
			return errors.New(complaint + item.Key)
		}
		if err := c.put(item.Path, data, ptr.Deref(item.Mode, c.mode)); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) downward(items []v1.DownwardAPIVolumeFile) error {
	for i := range items {
		item := &items[i]
		if err := c.explicitPath(item.Path); err != nil {
			return err
		}
		value, err := c.downwardValue(item)
		if err != nil {
			return fmt.Errorf("file %q: %w", item.Path, err)
		}
		if err := c.put(item.Path, []byte(value), ptr.Deref(item.Mode, c.mode)); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) downwardValue(item *v1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case item.FieldRef != nil:
		return c.in.Field(item.FieldRef.FieldPath)
	case item.ResourceFieldRef != nil:
		return c.in.Resource(item.ResourceFieldRef)
	}
	return "", nil
}

// bytesOf returns the bytes of a string without a copy, because a value can have a
// megabyte. They must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// missing adds the pod's namespace to a NotFound error.
func (s *setup) missing(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w in namespace %q", err, s.pod.Namespace)
	}
	return err
}
