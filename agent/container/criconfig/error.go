package criconfig

import (
	"errors"
	"fmt"
)

// ConfigError says that a container cannot be configured as things are: an
// object is missing, a rule is broken. Every error of Container and SubPaths
// holds one. The container waits with reason CreateContainerConfigError and
// is tried again, since what is missing may come.
type ConfigError struct {
	// Message is what the kubelet shows in the container's status, without
	// the container's name.
	Message string
}

func (e *ConfigError) Error() string { return e.Message }

func configErrorf(format string, args ...any) error {
	return &ConfigError{Message: fmt.Errorf(format, args...).Error()}
}

// inContainer says of which container the error is, and makes sure that it
// holds a ConfigError.
func inContainer(name string, err error) error {
	if known := new(ConfigError); !errors.As(err, &known) {
		err = &ConfigError{Message: err.Error()}
	}
	return fmt.Errorf("config of container %q: %w", name, err)
}
