package spec

import (
	"fmt"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopSignal returns the name of the signal that stops the container: of the config, else of
// the image. "" means neither has one. It returns names of Linux such as SIGTERM and
// SIGRTMIN+1 for the config's, and the image's value unchanged. A number that CRI does not
// define is an error.
func StopSignal(config *runtimeapi.ContainerConfig, image *ocispec.ImageConfig) (string, error) {
	signal := config.GetStopSignal()
	if signal == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return image.StopSignal, nil
	}
	name, ok := runtimeapi.Signal_name[int32(signal)]
	if !ok {
		return "", fmt.Errorf("stop_signal %d is unknown: use a signal that CRI defines", signal)
	}
	name = strings.TrimPrefix(name, "SIGNAL_")
	return strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name), nil
}
