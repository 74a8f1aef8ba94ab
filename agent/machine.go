package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/node/tunables"
)

// prepareMachine has the machine be as the configuration wants it: the kernel's
// parameters and the limit of open files; and warns of what it does not honour
// for what is on the machine. proc is where proc(5) is mounted.
func prepareMachine(cfg *config.Config, proc string, log *slog.Logger) error {
	kubelet := &cfg.Kubelet
	if kubelet.ProtectKernelDefaults {
		if err := tunables.Check(proc); err != nil {
			return fmt.Errorf("protectKernelDefaults: %w", err)
		}
	} else if err := tunables.Set(proc, log); err != nil {
		log.Warn("kernel parameters are not as wanted", "error", err, "remedy", "set them with sysctl -w and in /etc/sysctl.d")
	}
	if err := tunables.OpenFiles(uint64(max(kubelet.MaxOpenFiles, 0))); err != nil {
		log.Warn("fewer files can be open than wanted", "error", err, "remedy", "raise fs.nr_open, or lower maxOpenFiles")
	}
	swap, err := tunables.SwapOn(proc)
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
