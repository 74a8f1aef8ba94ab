package criconfig

import (
	"errors"
	"fmt"
)

// ConfigError means that a container cannot be configured now: an object is
// missing or a rule is violated. Every error of Container and SubPaths wraps
// one. The container waits with reason CreateContainerConfigError and is
// retried, since a missing object may appear.
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
