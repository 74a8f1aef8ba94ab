package criconfig

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// environment is a container's variables in the order in which their names
// first appear, each with its last value, as a program sees them.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) lookup(name string) (string, bool) {
	value, ok := e.values[name]
	return value, ok
}

func (e *environment) keyValues() []*runtimeapi.KeyValue {
	out := make([]*runtimeapi.KeyValue, len(e.names))
	for i, name := range e.names {
		out[i] = &runtimeapi.KeyValue{Key: name, Value: []byte(e.values[name])}
	}
	return out
}

// environmentOf resolves the container's variables: a value may refer to
// those before it. A value that is set wins over valueFrom.
func environmentOf(in *ContainerInput) (*environment, error) {
	e := &environment{values: make(map[string]string, len(in.Container.Env))}
	for i := range in.Container.Env {
		v := &in.Container.Env[i]
		value := expand(v.Value, e.lookup)
		if v.Value == "" && v.ValueFrom != nil {
			var err error
			if value, err = valueFrom(in, v.ValueFrom); err != nil {
				return nil, fmt.Errorf("env[%d] %s: %w", i, v.Name, err)
			}
		}
		e.set(v.Name, value)
	}
	return e, nil
}

func valueFrom(in *ContainerInput, from *v1.EnvVarSource) (string, error) {
	switch {
	case from.FieldRef != nil:
		return fieldValue(in, from.FieldRef)
	case from.ResourceFieldRef != nil:
		return resourceValue(in, from.ResourceFieldRef)
	default:
		return "", fmt.Errorf("valueFrom: only fieldRef and resourceFieldRef are supported yet")
	}
}
