package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// credentialFiles are the files with credentials that the agent uses even if other
// users may read them, as the kubelet does: without them the node would leave its
// cluster. Files of tinylet's own settings are refused instead (secretfile).
func (cfg *Config) credentialFiles() []string {
	return []string{
		cfg.Kubeconfig, cfg.BootstrapKubeconfig, cfg.Tinylet.EnrolKubeconfig, cfg.Kubelet.TLSPrivateKeyFile,
		filepath.Join(cfg.Paths.Root, "config.json"), filepath.Join(cfg.Paths.Root, ".dockercfg"),
	}
}

// ExposedCredentials returns the remedy for credentials that other users may read,
// or "". It reads the files' modes with each call.
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
		problems = append(problems, fmt.Sprintf("users other than its owner may use %s, which has credentials: chmod 600 it", path))
	}
	return strings.Join(problems, "; ")
}
