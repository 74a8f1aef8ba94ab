package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// credentialFiles returns the files with credentials that the agent uses even if
// other users may read them, as the kubelet does: without them the node would lose
// its cluster. Files of tinylet's own settings are rejected instead (secretfile).
func (cfg *Config) credentialFiles() []string {
	return []string{
		cfg.Kubeconfig, cfg.BootstrapKubeconfig, cfg.Tinylet.EnrolKubeconfig, cfg.Kubelet.TLSPrivateKeyFile,
		filepath.Join(cfg.Paths.Root, "config.json"), filepath.Join(cfg.Paths.Root, ".dockercfg"),
	}
}

// ExposedCredentials returns the problem and its remedy if other users may use
// files with credentials, else "". It reads the files' modes on each call.
func (cfg *Config) ExposedCredentials() string {
	var problems []string
	for _, path := range cfg.credentialFiles() {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || !secretfile.Exposed(info.Mode()) {
			continue
		}
		problems = append(problems, fmt.Sprintf("users other than its owner may use the credentials file %s: run chmod 600", path))
	}
	return strings.Join(problems, "; ")
}
