package shutdown

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// Folders of logind's configuration (logind.conf(5)), the persistent one and the
// one for this boot, and the file name that the kubelet uses there.
const (
	logindFolder    = "etc/systemd/logind.conf.d"
	logindRunFolder = "run/systemd/logind.conf.d"
	logindFile      = "99-kubelet.conf"
)

// writeDropIn writes the delay for logind into the first writable folder. The root
// file system of a board is often read-only.
func writeDropIn(folders []string, wait time.Duration) error {
	text := fmt.Sprintf("# Time for pods to terminate before the machine goes down.\n[Login]\nInhibitDelayMaxSec=%.0f\n", math.Ceil(wait.Seconds()))
	var errs []error
	for _, folder := range folders {
		err := atomicfile.WriteIfChanged(filepath.Join(folder, logindFile), []byte(text), 0o644)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("write %s: %w", filepath.Join(folder, logindFile), err))
	}
	return errors.Join(errs...)
}
