package tunables

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/tinylet/tinylet/agent/config"
)

// Prepare sets the kernel parameters and the limit of open files. With
// protectKernelDefaults it only checks the parameters, and fails as CheckParameters
// does. All other errors are logged. It logs a warning if swap is on with failSwapOn,
// and if there are FlexVolume plugins. proc is the mount point of proc(5).
func Prepare(cfg *config.Config, proc string, log *slog.Logger) error {
	kubelet := &cfg.Kubelet
	if kubelet.ProtectKernelDefaults {
		if err := CheckParameters(proc); err != nil {
			return fmt.Errorf("protectKernelDefaults: %w", err)
		}
	} else if err := SetParameters(proc, log); err != nil {
		log.Warn("cannot set kernel parameters", "error", err, "remedy", "set them with sysctl -w and in /etc/sysctl.d")
	}
	if err := RaiseOpenFilesLimit(uint64(max(kubelet.MaxOpenFiles, 0))); err != nil {
		log.Warn("cannot raise limit of open files", "error", err, "remedy", "raise fs.nr_open, or lower maxOpenFiles")
	}
	swap, err := SwapOn(proc)
	switch {
	case err != nil:
		log.Warn("cannot read swap areas", "error", err)
	case swap && *kubelet.FailSwapOn:
		log.Warn("setting is not honoured", "field", "failSwapOn", "value", true,
			"here", "swap is on, the agent starts anyway", "remedy", "set failSwapOn to false, or switch swap off")
	}
	plugins, err := os.ReadDir(kubelet.VolumePluginDir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		log.Warn("cannot list FlexVolume plugins", "error", err)
	case len(plugins) > 0:
		log.Warn("setting is not honoured", "field", "volumePluginDir", "value", kubelet.VolumePluginDir,
			"here", "FlexVolume plugins are not supported", "remedy", "use volumes of another kind")
	}
	return nil
}
