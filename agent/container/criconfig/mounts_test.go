package criconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestVolumeKinds: what may be written and what gets a label of SELinux.
func TestVolumeKinds(t *testing.T) {
	volumes := map[string]v1.VolumeSource{
		"made":    {EmptyDir: &v1.EmptyDirVolumeSource{}},
		"map":     {ConfigMap: &v1.ConfigMapVolumeSource{}},
		"secret":  {Secret: &v1.SecretVolumeSource{}},
		"self":    {DownwardAPI: &v1.DownwardAPIVolumeSource{}},
		"mixed":   {Projected: &v1.ProjectedVolumeSource{}},
		"node":    {HostPath: &v1.HostPathVolumeSource{Path: "/x"}},
		"claim":   {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}},
		"claimRO": {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ReadOnly: true}},
		"image":   {Image: &v1.ImageVolumeSource{}},
	}
	for name, want := range map[string]string{
		"made": "relabel", "map": "ro relabel", "secret": "ro relabel", "self": "ro relabel", "mixed": "ro relabel",
		"node": "", "claim": "", "claimRO": "ro", "image": "ro image",
	} {
		t.Run(name, func(t *testing.T) {
			in := envInput()
			in.Pod.Spec.Volumes = []v1.Volume{{Name: name, VolumeSource: volumes[name]}}
			in.Container.VolumeMounts = []v1.VolumeMount{{Name: name, MountPath: "/m"}}
			in.Container.TerminationMessagePath = "/t"
			in.Volumes = map[string]string{name: "/host/" + name}
			if name == "image" {
				in.Volumes = nil
			}
			in.ReadOnlyVolumes = map[string]bool{"claimRO": true}
			in.ImageVolumes = map[string]*runtimeapi.ImageSpec{"image": {Image: "i"}}
			in.Node.SELinux = true
			config, err := ContainerConfig(in)
			if err != nil {
				t.Fatal(err)
			}
			mounts := config.GetMounts()
			if len(mounts) != 3 || !mounts[1].GetSelinuxRelabel() || !mounts[2].GetSelinuxRelabel() {
				t.Errorf("got %v", mounts)
			}
			var got []string
			for word, is := range map[string]bool{"ro": mounts[0].GetReadonly(), "relabel": mounts[0].GetSelinuxRelabel(), "image": mounts[0].GetImage() != nil} {
				if is {
					got = append(got, word)
				}
			}
			if !sameWords(strings.Fields(want), got) || (mounts[0].GetHostPath() == "") != (name == "image") {
				t.Errorf("got %q of %v, want %q", got, mounts[0], want)
			}

			in.Node.SELinux = false
			if config, err = ContainerConfig(in); err != nil {
				t.Fatal(err)
			}
			for _, m := range config.GetMounts() {
				if m.GetSelinuxRelabel() {
					t.Errorf("relabelled without SELinux: %v", m)
				}
			}
		})
	}
}

func sameWords(a, b []string) bool {
	count := map[string]int{}
	for _, w := range a {
		count[w]++
	}
	for _, w := range b {
		count[w]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestRecursiveReadOnly(t *testing.T) {
	for _, tc := range []struct {
		mode      *v1.RecursiveReadOnlyMode
		supported bool
		want      bool
	}{
		{nil, true, false},
		{new(v1.RecursiveReadOnlyDisabled), true, false},
		{new(v1.RecursiveReadOnlyIfPossible), true, true},
		{new(v1.RecursiveReadOnlyIfPossible), false, false},
		{new(v1.RecursiveReadOnlyEnabled), true, true},
	} {
		m := &v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: tc.mode, MountPropagation: new(v1.MountPropagationNone)}
		if got, err := recursiveReadOnly(m, tc.supported); err != nil || got != tc.want {
			t.Errorf("%v, supported %v: got %v, %v", tc.mode, tc.supported, got, err)
		}
	}
}

func TestSubPaths(t *testing.T) {
	in := envInput()
	in.Container.Env = []v1.EnvVar{{Name: "A", Value: "a"}, {Name: "UP", Value: "x/../.."}, {Name: "ROOT", Value: "/etc"}, {Name: "EMPTY"}}
	in.ImageVolumes = map[string]*runtimeapi.ImageSpec{"i": {}}
	in.Container.VolumeMounts = []v1.VolumeMount{
		{Name: "v"}, {Name: "v", SubPath: "x/$(A)"}, {Name: "i", SubPath: "y"}, {Name: "v", SubPathExpr: "$(A)/..$(A)/$$(A)"},
	}
	got, err := SubPaths(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]string{1: "x/$(A)", 3: "a/..a/$(A)"}, got); diff != "" {
		t.Error(diff)
	}
	for expr, want := range map[string]string{
		"$(UP)": "must not contain '..'", "$(ROOT)": "must not be an absolute path", "..": "must not contain '..'",
		"a/..": "must not contain '..'", "/": "must not be an absolute path", "$(EMPTY)": "missing value for EMPTY", "$(NO)$(A)": "missing value for NO",
	} {
		in.Container.VolumeMounts = []v1.VolumeMount{{Name: "v", SubPathExpr: expr}}
		if got, err := SubPaths(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v, want %s", expr, got, err, want)
		}
	}
	in.Container.VolumeMounts = nil
	in.Container.Env = []v1.EnvVar{configMapKey("X", "no", "no", nil)}
	if got, err := SubPaths(in); err != nil || got != nil {
		t.Errorf("without any: got %v, %v", got, err)
	}
}

// FuzzSubPath: whatever is expanded, no path with .. or from the root comes
// out.
func FuzzSubPath(f *testing.F) {
	f.Add("$(A)/b", "..")
	f.Add("..$(A)", "/")
	f.Fuzz(func(t *testing.T, expr, value string) {
		env := &environment{values: map[string]string{"A": value}}
		got, err := subPath(&v1.VolumeMount{SubPathExpr: expr}, env)
		if err != nil {
			return
		}
		if strings.HasPrefix(got, "/") || strings.Contains("/"+got+"/", "/../") {
			t.Errorf("%q with %q became %q", expr, value, got)
		}
	})
}
