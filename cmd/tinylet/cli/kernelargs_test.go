package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKernelArgs(t *testing.T) {
	root := t.TempDir()
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := (&system{root: root}).kernelArgs()
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	if _, err := run(); err == nil || !strings.Contains(err.Error(), "no Raspberry Pi") {
		t.Fatalf("without cmdline.txt: %v", err)
	}
	file := filepath.Join(root, "boot", "cmdline.txt")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("rootwait\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ arg, says, file string }{
		{"", "/boot/cmdline.txt needs: cgroup_enable=memory cgroup_memory=1 psi=1", "rootwait\n"},
		{"--write", "Added to /boot/cmdline.txt: cgroup_enable=memory cgroup_memory=1 psi=1", "rootwait cgroup_enable=memory cgroup_memory=1 psi=1\n"},
		{"--write", "has them already", "rootwait cgroup_enable=memory cgroup_memory=1 psi=1\n"},
	} {
		out, err := run(strings.Fields(step.arg)...)
		got, readErr := os.ReadFile(file)
		if err != nil || readErr != nil || !strings.Contains(out, step.says) || string(got) != step.file {
			t.Errorf("kernel-args %s printed %q (%v), the file has %q (%v)", step.arg, out, err, got, readErr)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "proc", "pressure"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err != nil || strings.Contains(out, "psi=1") {
		t.Errorf("with /proc/pressure: %q, %v", out, err)
	}
	if err := os.WriteFile(file, []byte("one\ntwo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run("--write"); err == nil || !strings.Contains(err.Error(), "more than one line") {
		t.Errorf("with two lines: %v", err)
	}
}
