package board

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIdentify(t *testing.T) {
	tests := []struct {
		name              string
		model, compatible string
		want              Model
	}{
		{
			name:       "Raspberry Pi",
			model:      "Raspberry Pi Zero 2 W Rev 1.0\x00",
			compatible: "raspberrypi,model-zero-2-w\x00brcm,bcm2837\x00",
			want: Model{
				Name: "Raspberry Pi Zero 2 W Rev 1.0", Vendor: "raspberrypi", RaspberryPi: true,
				Compatible: []string{"raspberrypi,model-zero-2-w", "brcm,bcm2837"},
			},
		},
		{
			name:       "same processor, other maker",
			model:      "Maker Board\x00",
			compatible: "maker,board\x00brcm,bcm2837\x00",
			want:       Model{Name: "Maker Board", Vendor: "maker", Compatible: []string{"maker,board", "brcm,bcm2837"}},
		},
		{
			name:  "only a model",
			model: "Raspberry Pi 5 Model B Rev 1.0\x00",
			want:  Model{Name: "Raspberry Pi 5 Model B Rev 1.0", RaspberryPi: true},
		},
		{
			name:       "only compatible",
			compatible: "linux,dummy-virt\x00",
			want:       Model{Vendor: "linux", Compatible: []string{"linux,dummy-virt"}},
		},
		{
			name:       "no vendor, no last NUL, control characters",
			model:      "a\x1b[31mb\n",
			compatible: "thing",
			want:       Model{Name: "a[31mb", Compatible: []string{"thing"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, "proc/device-tree/model", tt.model)
			write(t, root, "proc/device-tree/compatible", tt.compatible)
			got, err := Identify(root)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Identify (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIdentifyCapturedTree(t *testing.T) {
	want := Model{
		Name: "Raspberry Pi 2 Model B", Vendor: "raspberrypi", RaspberryPi: true,
		Compatible: []string{"raspberrypi,2-model-b", "brcm,bcm2836"},
	}
	got, err := Identify("testdata/raspi2b")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Identify (-want +got):\n%s", diff)
	}
}

// TestKernelDeviceTrees has the properties of device trees of Linux 6.12, from
// Debian's linux-image-6.12.107+deb13-armmp.
func TestKernelDeviceTrees(t *testing.T) {
	for model, compatible := range map[string]string{
		"Raspberry Pi 4 Model B":                      "raspberrypi,4-model-b\x00brcm,bcm2711\x00",
		"Raspberry Pi 400":                            "raspberrypi,400\x00brcm,bcm2711\x00",
		"Raspberry Pi Compute Module 4 IO Board":      "raspberrypi,4-compute-module\x00brcm,bcm2711\x00",
		"Raspberry Pi 3 Model B+":                     "raspberrypi,3-model-b-plus\x00brcm,bcm2837\x00",
		"Raspberry Pi Compute Module 3 IO board V3.0": "raspberrypi,3-compute-module\x00brcm,bcm2837\x00",
		"Raspberry Pi Zero 2 W":                       "raspberrypi,model-zero-2-w\x00brcm,bcm2837\x00",
		"Raspberry Pi Zero":                           "raspberrypi,model-zero\x00brcm,bcm2835\x00",
	} {
		t.Run(model, func(t *testing.T) {
			m := modelOf([]byte(model+"\x00"), []byte(compatible))
			if m.Name != model || !m.RaspberryPi || m.Vendor != "raspberrypi" || len(m.Compatible) != 2 {
				t.Errorf("model %+v", m)
			}
		})
	}
}

func TestIdentifyBySysfsAlone(t *testing.T) {
	root := t.TempDir()
	write(t, root, "sys/firmware/devicetree/base/model", "Thing\x00")
	got, err := Identify(root)
	if err != nil || got.Name != "Thing" {
		t.Errorf("Identify = %+v, %v", got, err)
	}
}

func TestIdentifyWithoutDeviceTree(t *testing.T) {
	if _, err := Identify(t.TempDir()); !errors.Is(err, ErrNoDeviceTree) {
		t.Errorf("Identify of an empty tree: %v", err)
	}
}

func TestIdentifyUnreadable(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"model", "compatible"} {
		if err := os.MkdirAll(filepath.Join(root, "proc/device-tree", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Identify(root); err == nil || errors.Is(err, ErrNoDeviceTree) {
		t.Errorf("Identify of folders in place of properties: %v", err)
	}
}

func TestIdentifyHugeProperty(t *testing.T) {
	root := t.TempDir()
	write(t, root, "proc/device-tree/model", strings.Repeat("x", 1<<20))
	got, err := Identify(root)
	if err != nil || len(got.Name) != maxProperty {
		t.Errorf("Identify read %d characters of the model, %v", len(got.Name), err)
	}
}

func FuzzModelOf(f *testing.F) {
	f.Add([]byte("Raspberry Pi 4\x00"), []byte("raspberrypi,4-model-b\x00brcm,bcm2711\x00"))
	f.Add([]byte{}, []byte("\x00\x00,\x00"))
	f.Fuzz(func(t *testing.T, model, compatible []byte) {
		m := modelOf(model, compatible)
		for _, s := range append(m.Compatible, m.Name) {
			if strings.ContainsFunc(s, func(r rune) bool { return printable(r) < 0 }) {
				t.Errorf("unprintable character in %q", s)
			}
		}
	})
}

func write(t *testing.T, root, name, content string) {
	t.Helper()
	if content == "" {
		return
	}
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
