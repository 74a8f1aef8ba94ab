package manifest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tinylet/tinylet/agent/source/manifest"
)

var safeUID = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9-]{0,62}\z`)

// component says whether a name is one component of a path, not more and
// none that leads elsewhere.
func component(name string) bool {
	return filepath.IsLocal(name) && filepath.Base(name) == name && name != "." &&
		len(name) <= 255 && !strings.ContainsFunc(name, unicode.IsControl)
}

// checkPaths sees that no folder or file that is named after a pod leads out
// of where it belongs.
func checkPaths(t *testing.T, p *v1.Pod) {
	t.Helper()
	names := []string{string(p.UID), p.Name, p.Namespace, p.Namespace + "_" + p.Name + "_" + string(p.UID)}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		names = append(names, c.Name)
		for _, m := range c.VolumeMounts {
			if m.SubPath != "" && !filepath.IsLocal(m.SubPath) {
				t.Errorf("unsafe subPath %q", m.SubPath)
			}
		}
	}
	for _, v := range p.Spec.Volumes {
		names = append(names, v.Name)
		for name, items := range refersTo(&v) {
			names = append(names, name)
			for _, item := range items {
				if !filepath.IsLocal(item.Path) || strings.HasPrefix(item.Path, "..") {
					t.Errorf("unsafe path %q in volume %s", item.Path, v.Name)
				}
			}
		}
	}
	for _, name := range names {
		if !component(name) {
			t.Errorf("%q is no name of a folder", name)
		}
	}
}

// refersTo are the objects that a volume names, each with what becomes which
// file.
func refersTo(v *v1.Volume) map[string][]v1.KeyToPath {
	objects := map[string][]v1.KeyToPath{}
	if v.Secret != nil {
		objects[v.Secret.SecretName] = v.Secret.Items
	}
	if v.ConfigMap != nil {
		objects[v.ConfigMap.Name] = v.ConfigMap.Items
	}
	if v.PersistentVolumeClaim != nil {
		objects[v.PersistentVolumeClaim.ClaimName] = nil
	}
	if v.Projected != nil {
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				objects[source.Secret.Name] = append(objects[source.Secret.Name], source.Secret.Items...)
			}
			if source.ServiceAccountToken != nil {
				objects["token"] = append(objects["token"], v1.KeyToPath{Path: source.ServiceAccountToken.Path})
			}
		}
	}
	return objects
}

func FuzzManifest(f *testing.F) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, input := range inputs {
		data, err := os.ReadFile(input)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := manifest.Parse(data, board)
		if len(m.Pods) == 0 && len(m.Problems) == 0 && !strings.Contains(string(data), "List") {
			t.Error("neither a pod nor a problem")
		}
		again := manifest.Parse(data, board)
		for i, p := range m.Pods {
			if again.Pods[i].UID != p.UID {
				t.Errorf("UID %q, then %q", p.UID, again.Pods[i].UID)
			}
			if !safeUID.MatchString(string(p.UID)) {
				t.Errorf("unsafe UID %q", p.UID)
			}
			names := []string{p.Namespace}
			for _, c := range p.Spec.Containers {
				names = append(names, c.Name)
			}
			for _, c := range p.Spec.InitContainers {
				names = append(names, c.Name)
			}
			for _, v := range p.Spec.Volumes {
				names = append(names, v.Name)
				if v.HostPath != nil && strings.Contains(v.HostPath.Path+"/", "/../") {
					t.Errorf("unsafe host path %q", v.HostPath.Path)
				}
			}
			for _, name := range names {
				if len(validation.IsDNS1123Label(name)) > 0 {
					t.Errorf("unsafe name %q", name)
				}
			}
			if len(validation.IsDNS1123Subdomain(p.Name)) > 0 {
				t.Errorf("unsafe name %q", p.Name)
			}
			checkPaths(t, p)
			if len(p.Spec.Containers) == 0 {
				t.Error("no container")
			}
		}
	})
}

// FuzzSpec defaults and validates specs that no manifest text can produce.
// Nothing may panic, and defaulting must be idempotent.
func FuzzSpec(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &v1.Pod{}
		if len(data) > 1<<16 || json.Unmarshal(data, &p.Spec) != nil {
			return
		}
		manifest.Default(p)
		again := p.DeepCopy()
		manifest.Default(again)
		if !apiequality.Semantic.DeepEqual(p, again) {
			t.Error("a second time changes it")
		}
		for _, err := range manifest.Validate(p) {
			if err.Field == "" || err.Error() == "" {
				t.Errorf("%v names nothing", err)
			}
		}
	})
}
