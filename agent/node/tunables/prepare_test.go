package tunables

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/config"
)

func TestPrepare(t *testing.T) {
	proc := t.TempDir()
	for name, text := range map[string]string{
		"sys/vm/overcommit_memory": "0", "sys/vm/panic_on_oom": "0", "sys/kernel/panic": "10", "sys/kernel/panic_on_oops": "1",
		"sys/kernel/keys/root_maxkeys": "1000000", "sys/kernel/keys/root_maxbytes": "25000000",
		"swaps": "Filename\n/dev/zram0 partition 1 0 -2\n", "flex/vendor~driver": "",
	} {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	value := func() string {
		text, err := os.ReadFile(proc + "/sys/vm/overcommit_memory")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	kubelet, tinylet := config.Default()
	kubelet.ProtectKernelDefaults, kubelet.MaxOpenFiles = true, 1
	cfg := &config.Config{Kubelet: kubelet, Tinylet: tinylet}
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	if err := Prepare(cfg, proc, log); err == nil || !strings.HasPrefix(err.Error(), "protectKernelDefaults: kernel parameter vm.overcommit_memory is 0") || value() != "0" {
		t.Errorf("protected: %v, the kernel has %s", err, value())
	}

	cfg.Kubelet.ProtectKernelDefaults, cfg.Kubelet.VolumePluginDir = false, proc+"/flex"
	out.Reset()
	if err := Prepare(cfg, proc, log); err != nil || value() != "1" {
		t.Errorf("not protected: %v, the kernel has %s", err, value())
	}
	for _, want := range []string{"field=failSwapOn", "field=volumePluginDir", "name=vm.overcommit_memory value=1 before=0"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("%s is not told once in\n%s", want, out.String())
		}
	}

	no := false
	cfg.Kubelet.FailSwapOn, cfg.Kubelet.VolumePluginDir, cfg.Kubelet.ProtectKernelDefaults = &no, proc+"/none", true
	out.Reset()
	if err := Prepare(cfg, proc, log); err != nil || out.Len() > 0 {
		t.Errorf("all is as wanted: %v\n%s", err, out.String())
	}
	// What cannot be set is a warning.
	cfg.Kubelet.ProtectKernelDefaults = false
	if err := os.RemoveAll(proc + "/sys/kernel/keys"); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(cfg, proc, log); err != nil || strings.Count(out.String(), "level=WARN") != 1 {
		t.Errorf("no keys: %v\n%s", err, out.String())
	}
}
