package criconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ConfigError means that a container cannot be configured now: an object is missing or a
// rule is violated. Every error of ContainerConfig and SubPaths wraps one. The container
// waits with the reason CreateContainerConfigError and is retried, because a missing object
// may be created.
type ConfigError struct {
	// Message is what the kubelet shows in the container's status, without the
	// container's name.
	Message string
}

func (e *ConfigError) Error() string { return e.Message }

func configErrorf(format string, args ...any) error {
	return &ConfigError{Message: fmt.Errorf(format, args...).Error()}
}

// wrapContainerError adds the container's name to err, and ensures that the error
// wraps a ConfigError.
func wrapContainerError(name string, err error) error {
	if known := new(ConfigError); !errors.As(err, &known) {
		err = &ConfigError{Message: err.Error()}
	}
	return fmt.Errorf("build config of container %q: %w", name, err)
}

// Warning reports something that a pod requests and does not get although it starts. It
// becomes an event of type Warning.
type Warning struct {
	Reason  string
	Message string
}

// Reasons of warnings, the same as those of the kubelet's events.
const (
	reasonDNS     = "DNSConfigForming"
	reasonEnvName = "InvalidEnvironmentVariableNames"
)

// SandboxWarnings returns warnings for what SandboxConfig omits: name servers and search
// domains beyond the limits.
func SandboxWarnings(p *v1.Pod, n *Node) []Warning {
	_, warnings := dnsOf(p, n)
	return warnings
}

// ContainerWarnings returns warnings for what ContainerConfig omits: keys of ConfigMaps and
// Secrets that, with the prefix, cannot be the name of a variable. The API allows no such
// key. An object from a file may have one.
func ContainerWarnings(in *ContainerInput) []Warning {
	var out []Warning
	for i := range in.Container.EnvFrom {
		from := &in.Container.EnvFrom[i]
		var bad []string
		kind, name := "ConfigMap", ""
		switch {
		case from.ConfigMapRef != nil:
			name = from.ConfigMapRef.Name
			if m := in.ConfigMaps[name]; m != nil {
				bad = badNames(from.Prefix, m.Data)
			}
		case from.SecretRef != nil:
			kind, name = "Secret", from.SecretRef.Name
			if s := in.Secrets[name]; s != nil {
				bad = badNames(from.Prefix, s.Data)
			}
		}
		if len(bad) > 0 {
			out = append(out, Warning{reasonEnvName, fmt.Sprintf(
				"Keys [%s] from the EnvFrom %s %s/%s were skipped since they are considered invalid environment variable names.",
				strings.Join(bad, ", "), kind, in.Pod.Namespace, name)})
		}
	}
	return out
}

func badNames[V any](prefix string, data map[string]V) []string {
	var bad []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if !validName(prefix + key) {
			bad = append(bad, key)
		}
	}
	return bad
}

func validName(name string) bool {
	return len(validation.IsRelaxedEnvVarName(name)) == 0
}
