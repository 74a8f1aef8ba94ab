package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExposedCredentials(t *testing.T) {
	dir := t.TempDir()
	cfg := &Config{Kubeconfig: filepath.Join(dir, "kubelet.conf")}
	cfg.Tinylet.EnrolKubeconfig, cfg.Paths.Root = filepath.Join(dir, "enrol.conf"), dir
	problem := cfg.ExposedCredentials
	if got := problem(); got != "" {
		t.Errorf("no files: %q", got)
	}
	for _, path := range []string{cfg.Kubeconfig, cfg.Tinylet.EnrolKubeconfig, filepath.Join(dir, "config.json")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := problem(); got != "" {
			t.Errorf("%s has mode 0600: %q", path, got)
		}
		for _, mode := range []os.FileMode{0o644, 0o640, 0o604} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			if got := problem(); !strings.Contains(got, path) || !strings.Contains(got, "chmod 600") {
				t.Errorf("%s has mode %04o: %q", path, mode, got)
			}
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
