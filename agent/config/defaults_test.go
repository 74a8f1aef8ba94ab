package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

var update = flag.Bool("update", false, "write the golden files")

func TestDefaultGolden(t *testing.T) {
	kc, tc := Default()
	first, err := yaml.Marshal(&kc)
	if err != nil {
		t.Fatal(err)
	}
	second, err := yaml.Marshal(&tc)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "defaults.yaml", bytes.Join([][]byte{first, second}, []byte("---\n")))
}

// What the defaults encode to must load as the defaults again.
func TestDefaultRoundTrip(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "defaults.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	fromFile, warnings := mustBuild(t, nil, &file{"/etc/c.yaml", data})
	if len(warnings) != 1 || warnings[0].Message != noSource {
		t.Errorf("warnings = %v, want only %q", warnings, noSource)
	}
	fromNothing, _ := mustBuild(t, nil, nil)
	if diff := cmp.Diff(fromNothing, fromFile, addrs); diff != "" {
		t.Errorf("loading the defaults changes them (-want +got):\n%s", diff)
	}
}

func TestSetDefaultsKeepsWhatIsSet(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"false is set", `{"failSwapOn":false}`, `{"failSwapOn":false}`},
		{"zero is set", `{"healthzPort":0}`, `{"healthzPort":0}`},
		{"report follows update", `{"nodeStatusUpdateFrequency":"20s"}`, `{"nodeStatusReportFrequency":"20s"}`},
		{"parallel pulls are not serial", `{"maxParallelImagePulls":3}`, `{"serializeImagePulls":false}`},
		{"one parallel pull is serial", `{"maxParallelImagePulls":1}`, `{"serializeImagePulls":true}`},
		{"any negative pid limit is -1", `{"podPidsLimit":-7}`, `{"podPidsLimit":-1}`},
		{"a threshold replaces all", `{"evictionHard":{"memory.available":"1Mi"}}`, `{"evictionHard":{"memory.available":"1Mi"}}`},
		{
			"a threshold joins the defaults", `{"evictionHard":{"memory.available":"1Mi"},"mergeDefaultEvictionSettings":true}`,
			`{"evictionHard":{"memory.available":"1Mi","nodefs.available":"10%","nodefs.inodesFree":"5%","imagefs.available":"15%","imagefs.inodesFree":"5%"}}`,
		},
		{"no enforcement is a choice", `{"enforceNodeAllocatable":[]}`, `{"enforceNodeAllocatable":[]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got kubelet.KubeletConfiguration
			decode(t, tc.in, &got)
			setDefaults(&got, 0)
			// want is the same with the fields of tc.want laid over it.
			var want kubelet.KubeletConfiguration
			decode(t, tc.in, &want)
			setDefaults(&want, 0)
			want.EvictionHard = nil
			decode(t, tc.want, &want)
			if want.EvictionHard == nil {
				want.EvictionHard = evictionapi.DefaultHard(0)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func decode(t *testing.T, in string, into any) {
	t.Helper()
	if strict, err := kjson.UnmarshalStrict([]byte(in), into); err != nil || len(strict) > 0 {
		t.Fatalf("decode %s: %v %v", in, err, strict)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), -update writes it:\n%s", path, diff)
	}
}
