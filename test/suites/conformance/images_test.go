package conformance

import (
	"bytes"
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
			if f.Name == "bin/sh" && f.Link == "bash" {
				shells++
			}
		}
	}
	if shells != 7 {
		t.Errorf("%d images have Bash for their shell, want all but pause", shells)
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
