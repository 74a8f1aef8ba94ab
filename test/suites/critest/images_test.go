package critest

import (
	"bytes"
	"testing"

	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

func TestImages(t *testing.T) {
	busybox := []byte("\x7fELF \x00[\x00[[\x00cat\x00ls\x00lsmod\x00sh\x00\x00")
	images, err := Images("arm64", Programs{Busybox: busybox, Standin: []byte("standin")})
	if err != nil {
		t.Fatal(err)
	}
	if err := imagetar.Write(&bytes.Buffer{}, images...); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, im := range images {
		if names[im.Name] {
			t.Errorf("two images are named %s", im.Name)
		}
		names[im.Name] = true
	}
	for _, f := range images[0].Files {
		if f.Name == "bin/ls" && !bytes.Equal(f.Data, busybox) || f.Name == "bin/busybox" && bytes.Contains(f.Data, []byte("\x00ls\x00")) {
			t.Errorf("%s of %s is wrong", f.Name, images[0].Name)
		}
	}
	if _, err := Images("arm64", Programs{Busybox: []byte("\x00[\x00[[\x00cat\x00sh\x00\x00")}); err == nil {
		t.Error("a BusyBox without ls is accepted")
	}
}
