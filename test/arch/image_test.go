package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

const overlay = "../../buildroot/board/common/rootfs-overlay"

// TestBoardImageIsHardened holds the settings of the board's image that protect
// the node from its pods.
func TestBoardImageIsHardened(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(overlay, "etc/tinylet/config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	var config kubelet.KubeletConfiguration
	if err := yaml.UnmarshalStrict([]byte(first), &config); err != nil {
		t.Fatal(err)
	}
	if config.SeccompDefault == nil || !*config.SeccompDefault {
		t.Error("pods have no seccomp profile by default")
	}
	if config.PodPidsLimit == nil || *config.PodPidsLimit <= 0 {
		t.Error("a pod may take all process IDs of the node")
	}
	sysctls, err := os.ReadFile(filepath.Join(overlay, "etc/sysctl.d/90-tinylet.conf"))
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for line := range strings.Lines(string(sysctls)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, " = ")
		if !ok {
			t.Errorf("%q is no setting", line)
		}
		set[key] = value
	}
	for key, want := range map[string]string{
		"kernel.kptr_restrict": "1", "kernel.dmesg_restrict": "1", "kernel.unprivileged_bpf_disabled": "1",
		"fs.protected_symlinks": "1", "fs.protected_hardlinks": "1", "fs.protected_fifos": "2", "fs.protected_regular": "2",
		// Not 1: routed pods and second uplinks have routes of their own.
		"net.ipv4.conf.all.rp_filter": "2", "net.ipv4.conf.default.rp_filter": "2",
	} {
		if set[key] != want {
			t.Errorf("%s is %q, want %s", key, set[key], want)
		}
	}
}
