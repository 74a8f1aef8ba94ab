package tunables

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/tinylet/tinylet/agent/config"
)

// Prepare applies the settings of the machine: the kernel parameters, which
// protectKernelDefaults only checks, and the limit of open files. It warns of
// settings that are not honoured because of what the machine has, such as swap.
// proc is the mount point of proc(5). It fails if protectKernelDefaults is set and
// a kernel parameter has another value.
func Prepare(cfg *config.Config, proc string, log *slog.Logger) error {
	kubelet := &cfg.Kubelet
	if kubelet.ProtectKernelDefaults {
		if err := Check(proc); err != nil {
			return fmt.Errorf("protectKernelDefaults: %w", err)
		}
	} else if err := Set(proc, log); err != nil {
		log.Warn("kernel parameters are not as wanted", "error", err, "remedy", "set them with sysctl -w and in /etc/sysctl.d")
	}
	if err := OpenFiles(uint64(max(kubelet.MaxOpenFiles, 0))); err != nil {
		log.Warn("fewer files can be open than wanted", "error", err, "remedy", "raise fs.nr_open, or lower maxOpenFiles")
	}
	swap, err := SwapOn(proc)
	switch {
	case err != nil:
		log.Warn("swap is not known", "error", err)
	case swap && *kubelet.FailSwapOn:
		log.Warn("setting is not honoured", "field", "failSwapOn", "value", true,
			"here", "swap is on and the agent starts", "remedy", "set failSwapOn to false, or switch swap off")
	}
	plugins, err := os.ReadDir(kubelet.VolumePluginDir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		log.Warn("FlexVolume plugins are not known", "error", err)
	case len(plugins) > 0:
		log.Warn("setting is not honoured", "field", "volumePluginDir", "value", kubelet.VolumePluginDir,
			"here", "FlexVolume plugins are not used", "remedy", "use volumes of another kind")
	}
	return nil
}
