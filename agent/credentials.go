package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// credentialFiles are the files with credentials that the agent uses also if
// other users may read them, as a kubelet does: without them the node leaves its
// cluster. A file of tinylet's own settings is refused instead, by package
// secretfile.
func credentialFiles(cfg *config.Config) []string {
	return []string{
		cfg.Kubeconfig, cfg.BootstrapKubeconfig, cfg.Tinylet.EnrolKubeconfig, cfg.Kubelet.TLSPrivateKeyFile,
		filepath.Join(cfg.Paths.Root, "config.json"), filepath.Join(cfg.Paths.Root, ".dockercfg"),
	}
}

// exposedFiles returns what somebody has to do about credentials that other
// users may read. The files are looked at with each call.
func exposedFiles(cfg *config.Config) func() string {
	return func() string {
		var problems []string
		for _, path := range credentialFiles(cfg) {
			if path == "" {
				continue
			}
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() || !secretfile.Exposed(info.Mode()) {
				continue
			}
			problems = append(problems, fmt.Sprintf("users other than its owner may use %s, which has credentials: chmod 600 it", path))
		}
		return joined(problems...)
	}
}

// warnOfExposed logs what exposedFiles reports at the start.
func warnOfExposed(cfg *config.Config, log *slog.Logger) {
	if problem := exposedFiles(cfg)(); problem != "" {
		log.Warn("credentials are readable by other users", "remedy", problem)
	}
}
