//go:build board

package standalone

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/container/native/pause"
	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

// Container images of these tests, beside those that every board has.
const (
	programImage = "localhost/program:1" // test/testpod, with a user "app"
	filesImage   = "localhost/files:1"   // nothing but a file, for an image volume
	lateImage    = "localhost/late:1"    // comes to the board while a pod waits
	imagesDir    = "/var/lib/tinylet/images"
)

func goarch() string {
	if arch() == board.ARMv7 {
		return "arm"
	}
	return "arm64"
}

// programArchive is an archive of programImage and filesImage.
func programArchive(t *testing.T) []byte {
	t.Helper()
	env, err := arch().GoEnv()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", file, "../../testpod")
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the containers' program: %v\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the containers' program has %.1f MB", float64(len(program))/1e6)
	return archive(t,
		imagetar.Image{Name: programImage, GOARCH: goarch(), Entrypoint: []string{"/program"}, Env: []string{"PATH=/"}, Files: []imagetar.File{
			{Name: "program", Mode: 0o755, Data: program},
			{Name: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0::/:\napp:x:1000:1000::/:\n")},
			{Name: "etc/group", Mode: 0o644, Data: []byte("root:x:0:\napp:x:1000:\nextra:x:50000:app\n")},
			{Name: "work/", Mode: 0o755},
			{Name: "tmp/", Mode: 0o777 | os.ModeSticky},
		}},
		imagetar.Image{Name: filesImage, GOARCH: goarch(), Files: []imagetar.File{{Name: "dir/text", Mode: 0o644, Data: []byte("from an image")}}},
	)
}

// lateArchive is an archive of lateImage, a few hundred bytes of program.
func lateArchive(t *testing.T) []byte {
	t.Helper()
	program, err := pause.Program(goarch())
	if err != nil {
		t.Fatal(err)
	}
	return archive(t, imagetar.Image{Name: lateImage, GOARCH: goarch(), Entrypoint: []string{"/pause"}, Files: []imagetar.File{{Name: "pause", Mode: 0o755, Data: program}}})
}

func archive(t *testing.T, images ...imagetar.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := imagetar.Write(&b, images...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// manifest completes the short names of images.
func manifest(text string) string {
	return strings.NewReplacer("image: program", "image: "+programImage, "image: busybox", "image: "+board.BusyboxImage).Replace(text)
}
