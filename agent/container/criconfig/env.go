package criconfig

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// environment holds a container's variables in the order in which their names
// first appear, each with its last value.
type environment struct {
	names  []string
	values map[string]string
	// services are the service variables, which come after all others.
	services map[string]string
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) lookup(name string) (string, bool) {
	value, ok := e.values[name]
	if !ok {
		value, ok = e.services[name]
	}
	return value, ok
}

func (e *environment) keyValues() []*runtimeapi.KeyValue {
	out := make([]*runtimeapi.KeyValue, len(e.names))
	for i, name := range e.names {
		out[i] = &runtimeapi.KeyValue{Key: name, Value: []byte(e.values[name])}
	}
	return out
}

// environmentOf resolves the container's variables like
// makeEnvironmentVariables in pkg/kubelet/kubelet_pods.go. envFrom comes first,
// and its last source takes precedence. env comes next, overrides envFrom, and may refer to
// all variables before it and to service variables. A value that is set takes precedence
// over valueFrom. An optional source that is missing leaves the variable unchanged. Service
// variables come last, for names that are not set yet.
func environmentOf(in *ContainerInput) (*environment, error) {
	c := in.Container
	e := &environment{values: make(map[string]string, len(c.Env)), services: serviceEnv(in.Pod, in.Services)}
	for i := range c.EnvFrom {
		if err := e.setAll(in, &c.EnvFrom[i]); err != nil {
			return nil, fmt.Errorf("envFrom[%d]: %w", i, err)
		}
	}
	for i := range c.Env {
		v := &c.Env[i]
		value, ok := expand(v.Value, e.lookup), true
		if v.Value == "" && v.ValueFrom != nil {
			var err error
			if value, ok, err = valueFrom(in, v.ValueFrom); err != nil {
				return nil, fmt.Errorf("env[%d] %s: %w", i, v.Name, err)
			}
		}
		if ok {
			e.set(v.Name, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.services)) {
		if _, set := e.values[name]; !set {
			e.set(name, e.services[name])
		}
	}
	return e, nil
}

// setAll adds the entries of an object in the order of their keys. It skips keys that cannot
// be the name of a variable.
func (e *environment) setAll(in *ContainerInput, from *v1.EnvFromSource) error {
	switch {
	case from.ConfigMapRef != nil:
		m, err := object(in.ConfigMaps, "configmap", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if m != nil {
			setEntries(e, from.Prefix, m.Data)
		}
		return err
	case from.SecretRef != nil:
		s, err := object(in.Secrets, "secret", from.SecretRef.Name, from.SecretRef.Optional)
		if s != nil {
			setEntries(e, from.Prefix, s.Data)
		}
		return err
	}
	return nil
}

func setEntries[V string | []byte](e *environment, prefix string, data map[string]V) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if name := prefix + key; validName(name) {
			e.set(name, string(data[key]))
		}
	}
}

// valueFrom resolves a variable's source. ok is false if the source is missing; without an
// error it is optional.
func valueFrom(in *ContainerInput, from *v1.EnvVarSource) (value string, ok bool, err error) {
	switch {
	case from.FieldRef != nil:
		if v := from.FieldRef.APIVersion; v != "" && v != "v1" {
			return "", false, configErrorf("unsupported pod version: %s", v)
		}
		value, err = FieldValue(in.Pod, in.Node, in.podIPs(), from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = envResourceValue(in, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		m, err := object(in.ConfigMaps, "configmap", ref.Name, ref.Optional)
		if m == nil {
			return "", false, err
		}
		value, ok = m.Data[ref.Key]
		return value, ok, missingKey(in, ok, "ConfigMap", ref.Name, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := object(in.Secrets, "secret", ref.Name, ref.Optional)
		if s == nil {
			return "", false, err
		}
		data, ok := s.Data[ref.Key]
		return string(data), ok, missingKey(in, ok, "Secret", ref.Name, ref.Key, ref.Optional)
	case from.FileKeyRef != nil:
		return fileValue(in, from.FileKeyRef)
	}
	return "", true, nil // a variable without a source is empty
}

// object returns the object of that name, or nil without an error if it is
// optional and missing.
func object[T v1.ConfigMap | v1.Secret](all map[string]*T, kind, name string, optional *bool) (*T, error) {
	o := all[name]
	if o == nil && !isTrue(optional) {
		return nil, configErrorf("%s %q not found", kind, name)
	}
	return o, nil
}

// missingKey returns the error of a key that an object lacks, nil if it is optional.
func missingKey(in *ContainerInput, found bool, kind, name, key string, optional *bool) error {
	if found || isTrue(optional) {
		return nil
	}
	return configErrorf("couldn't find key %s in %s %s/%s", key, kind, in.Pod.Namespace, name)
}

// EnvRefs returns the names of the ConfigMaps and Secrets in the pod's
// namespace that a container's environment refers to, including optional ones,
// each once.
func EnvRefs(c *v1.Container) (configMaps, secrets []string) {
	for i := range c.EnvFrom {
		if ref := c.EnvFrom[i].ConfigMapRef; ref != nil {
			configMaps = append(configMaps, ref.Name)
		}
		if ref := c.EnvFrom[i].SecretRef; ref != nil {
			secrets = append(secrets, ref.Name)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if ref := from.ConfigMapKeyRef; ref != nil {
			configMaps = append(configMaps, ref.Name)
		}
		if ref := from.SecretKeyRef; ref != nil {
			secrets = append(secrets, ref.Name)
		}
	}
	return unique(configMaps), unique(secrets)
}

func isTrue(b *bool) bool { return b != nil && *b }
