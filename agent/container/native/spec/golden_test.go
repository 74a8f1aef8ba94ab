package spec

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/encoding/protojson"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var update = flag.Bool("update", false, "write the golden files")

// configs is the directory with the CRI configs of pods: the golden files of package criconfig.
const configs = "../../criconfig/testdata"

// goldenContainer is a container on a board with all features, of an image with a
// value in each field.
func goldenContainer(t *testing.T, sandbox *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) *Container {
	t.Helper()
	c := simple(t)
	c.ID, c.SandboxID, c.Sandbox, c.Config = "c"+config.GetMetadata().GetName(), "s"+sandbox.GetMetadata().GetName(), sandbox, config
	c.Image = &ocispec.ImageConfig{
		User: "app:audio", Env: []string{"PATH=/image/bin", "FROM=image"}, Entrypoint: []string{"/entry"}, Cmd: []string{"cmd"},
		WorkingDir: "/image", Volumes: map[string]struct{}{"/data": {}},
	}
	c.Volumes = map[string]string{"/data": "/volumes/data"}
	c.Namespaces.Target = "/proc/77/ns/pid"
	c.ImageMounts = map[int]string{}
	for i, m := range config.GetMounts() {
		if m.GetImage() != nil {
			c.ImageMounts[i] = fmt.Sprint("/images/", i)
		}
	}
	mountOf := c.Node.MountOf
	c.Node.MountOf = func(path string) (*mountinfo.Info, error) {
		if path != cgroupRoot {
			path = "/shared" + path
		}
		return mountOf(path)
	}
	c.Node.AppArmor = true
	c.Node.AppArmorLoaded = func(string) (bool, error) { return true, nil }
	c.Node.ReadSeccomp = func(path string) ([]byte, error) {
		return json.Marshal(specs.LinuxSeccomp{DefaultAction: specs.ActLog, ListenerMetadata: "file " + path})
	}
	return c
}

// TestGolden pins the specs of whole pods. Their CRI configs are those that package criconfig
// builds and pins.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(configs, "*.golden.json"))
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".golden.json"), func(t *testing.T) {
			got := renderPod(t, file)
			golden := filepath.Join("testdata", filepath.Base(file))
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got, -update writes it anew)\n%s", diff)
			}
		})
	}
}

// renderPod returns the specs of a pod's containers as JSON, by the names in criconfig's file.
func renderPod(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		t.Fatal(err)
	}
	sandbox := &runtimeapi.PodSandboxConfig{}
	if err := protojson.Unmarshal(parts["sandbox"], sandbox); err != nil {
		t.Fatal(err)
	}
	out := map[string]*specs.Spec{}
	for name, part := range parts {
		if !strings.HasPrefix(name, "container ") {
			continue
		}
		config := &runtimeapi.ContainerConfig{}
		if err := protojson.Unmarshal(part, config); err != nil {
			t.Fatal(err)
		}
		if out[name], err = Build(goldenContainer(t, sandbox, config)); err != nil {
			t.Fatal(err)
		}
	}
	if len(out) == 0 {
		t.Fatal("the file has no containers")
	}
	text, err = json.MarshalIndent(out, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}
