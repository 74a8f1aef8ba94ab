//go:build board

package board

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

// TestRuntimeConformance runs what the product tests against a real runtime on
// the board, against its containerd: the suite for runtime drivers, with
// sandboxes that have a network, containers with logs, events, and a restart
// of containerd, for both drivers; and the import of image archives.
// CONFORMANCE_PART selects parts of the suite. With BOARD_CNI, a directory with upstream's CNI
// plugins, those connect the sandboxes.
func TestRuntimeConformance(t *testing.T) {
	ctx, im := prepared(t)
	restart, parent := "/etc/init.d/S40containerd restart", "/conformance"
	if os.Getenv("BOARD_SYSTEMD") != "" {
		restart, parent = "systemctl restart containerd", "/conformance.slice"
	}
	tests := []struct{ name, pkg, test, env string }{
		{"cri", "cri", "TestConformanceOverRuntime", ""},
		{"native", "native", "TestConformance", ""},
		{"native over CRI", "native", "TestConformance", "TINYLET_RUNTIME_SERVED=yes"},
		{"recovery", "native", "TestRecovery", ""},
		{"pull", "native", "TestPull", ""},
		{"preload", "preload", "TestOverContainerd", ""},
	}
	var files []File
	for _, pkg := range []string{"cri", "native", "preload"} {
		binary := filepath.Join(t.TempDir(), pkg+".test")
		buildTest(ctx, t, im.Arch, binary, "./agent/container/"+pkg)
		files = append(files, File{Path: guestTest(pkg), Mode: 0o755, Source: binary})
	}
	network := conflist
	if dir := os.Getenv("BOARD_CNI"); dir != "" {
		network = foreignConflist
		for _, name := range []string{"bridge", "host-local", "portmap"} {
			files = append(files, File{Path: "/opt/cni/bin/" + name, Mode: 0o755, Source: filepath.Join(dir, name)})
		}
	}
	files = append(files, File{Path: "/etc/cni/net.d/10-suite.conflist", Mode: 0o644, Data: []byte(network)}, File{Path: "/opt/cni/bin/tinylet-cni", Link: guestTest("cri")})
	vm := booted(ctx, t, im, VMOptions{Files: files})
	busybox, err := vm.Get(ctx, "/usr/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := vm.Put(ctx, suiteArchive, bytes.NewReader(suiteImages(t, im.Arch, busybox)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			shell(ctx, t, vm, "ctr -n k8s.io images import "+suiteArchive)
			var said bytes.Buffer
			out, err := vm.RunCmd(ctx, Cmd{
				Argv: []string{guestTest(tt.pkg), "-test.run", "^" + tt.test + "$/" + os.Getenv("CONFORMANCE_PART"), "-test.v", "-test.timeout", fmt.Sprint(boardTime)},
				Env: append(strings.Fields(tt.env),
					"TINYLET_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock",
					"TINYLET_RUNTIME_IMAGE="+BusyboxImage,
					"TINYLET_RUNTIME_SPARE="+spareImage,
					"TINYLET_RUNTIME_CONFIGURED="+configuredImage,
					"TINYLET_RUNTIME_NETWORK=yes",
					"TINYLET_RUNTIME_PATIENCE=120s",
					"TINYLET_RUNTIME_RESTART="+restart,
					"TINYLET_RUNTIME_CGROUP="+parent,
					"TINYLET_RUNTIME_CNI="+os.Getenv("BOARD_CNI"),
				),
				Stdout: io.MultiWriter(&said, testLog{t}), Stderr: testLog{t},
			})
			if err != nil {
				t.Fatal(err)
			}
			// One that skips itself has not passed.
			if out.Exit != 0 || !strings.Contains(said.String(), "--- PASS: "+tt.test) {
				t.Errorf("%s ends with exit code %d and does not pass", tt.test, out.Exit)
				log, err := vm.Shell(ctx, "tail -c 5000 /var/log/containerd.log || journalctl -u containerd -n 50")
				t.Logf("containerd's log: %s, %v", log, err)
			}
		})
	}
}

// Images of the suite: one that it removes, and one with a configuration.
const (
	spareImage      = "localhost/spare:1"
	configuredImage = "localhost/configured:1"
	suiteArchive    = "/usr/lib/board/suite.tar"
)

// suiteImages makes the archive with the suite's images. busybox is the board's.
func suiteImages(t *testing.T, a Arch, busybox []byte) []byte {
	t.Helper()
	goarch := arches[a].goarch
	configured, err := imagetar.Busybox(configuredImage, goarch, busybox)
	if err != nil {
		t.Fatal(err)
	}
	configured.User, configured.Volumes = "app", []string{"/data"}
	configured.Env = append(configured.Env, "B=image", "C=image")
	for i, f := range configured.Files {
		switch f.Name {
		case "etc/passwd":
			configured.Files[i].Data = append(f.Data, "app:x:1234:2345:app:/:/bin/sh\n"...)
		case "etc/group":
			configured.Files[i].Data = append(f.Data, "app:x:2345:\nmore:x:3456:app\n"...)
		}
	}
	configured.Files = append(configured.Files, imagetar.File{Name: "data/", Mode: 0o750, UID: 1234, GID: 2345},
		imagetar.File{Name: "data/seed", Mode: 0o640, UID: 1234, GID: 2345, Data: []byte("seed\n")})
	var b bytes.Buffer
	spare := imagetar.Image{Name: spareImage, GOARCH: goarch, Entrypoint: []string{"/spare"}, Files: []imagetar.File{{Name: "spare", Mode: 0o755, Data: []byte("spare")}}}
	if err := imagetar.Write(&b, spare, configured); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// conflist is the network of the pods that the runtime runs by itself.
const conflist = `{"cniVersion": "1.0.0", "name": "suite", "plugins": [{"type": "tinylet-cni", "ranges": [{"subnet": "10.99.0.0/24"}]}]}
`

// foreignConflist is the same with upstream's plugins.
const foreignConflist = `{"cniVersion": "1.0.0", "name": "suite", "plugins": [
  {"type": "bridge", "bridge": "suite0", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`

// guestTest is where a package's tests lie on the board.
func guestTest(name string) string { return "/usr/lib/board/" + name + ".test" }

// buildTest builds the tests of a package of the product for a board.
func buildTest(ctx context.Context, t *testing.T, a Arch, file, pkg string) {
	t.Helper()
	repo, err := findRepo()
	if err != nil {
		t.Fatal(err)
	}
	env, err := a.GoEnv()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(ctx, repo, env, "go", "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", file, pkg); err != nil {
		t.Fatal(err)
	}
}
