package conformance

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

func TestImages(t *testing.T) {
	programs := Programs{Busybox: []byte("\x7fELF[\x00[[\x00cat\x00httpd\x00sh\x00\x00"), Bash: []byte("bash"), Agnhost: []byte("agnhost"), Nonewprivs: []byte("nnp")}
	const registry = "registry.k8s.io/e2e-test-images/"
	names := []string{
		registry + "agnhost:2.63.0", registry + "agnhost:2.55", "gcr.io/k8s-authenticated-test/agnhost:2.6", registry + "busybox:1.37.0-1",
		registry + "glibc-dns-testing:2.0.0", registry + "nginx:1.27-0", registry + "nonewprivs:1.4", registry + "nonroot:1.5", "registry.k8s.io/pause:3.10.2", registry + "volume/nfs:1.6.0",
	}
	images, err := Images(names, "arm64", programs)
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 8 {
		t.Errorf("%d images, want 8", len(images))
	}
	shells := 0
	for _, im := range images {
		for _, f := range im.Files {
			if f.Name == "bin/sh" && f.Link == "" && string(f.Data) == shell {
				shells++
			}
		}
	}
	if shells != 7 {
		t.Errorf("%d images have the shell, want all but pause", shells)
	}
	if err := imagetar.Write(&bytes.Buffer{}, images...); err != nil {
		t.Error(err)
	}
	if _, err := Images(names[1:4], "arm64", programs); err == nil || !strings.Contains(err.Error(), "nginx") {
		t.Errorf("a list without nginx: %v", err)
	}
	if _, err := Images(names, "arm64", Programs{Busybox: []byte("no program")}); err == nil {
		t.Error("a busybox without applets is accepted")
	}
}

// TestShell runs the shell with the machine's Bash, and with a script in place of
// BusyBox.
func TestShell(t *testing.T) {
	dir := t.TempDir()
	other, sh := filepath.Join(dir, "busybox"), filepath.Join(dir, "sh")
	for path, text := range map[string]string{
		other: "#!/bin/bash\nprintf 'busybox %s' \"$*\"\n",
		sh:    strings.ReplaceAll(shell, "/bin/busybox", other),
	} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	for variable, want := range map[string]string{
		"DATA_1=a-b c":   "busybox -c env echo",
		"data-1=value-1": "data-1=value-1",
		"data.1=value-1": "data.1=value-1",
	} {
		cmd := exec.CommandContext(t.Context(), sh, "-c", "env", "echo")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LAST=", variable}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) || strings.HasPrefix(want, "busybox") != strings.HasPrefix(string(out), "busybox") {
			t.Errorf("%s: %v\n%s", variable, err, out)
		}
	}
}
