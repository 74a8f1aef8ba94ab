//go:build board

package standalone

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// scenes are those of TestPod, in their order.
func scenes() []scene {
	return []scene{
		containerScene(), lifecycleScene(), probeScene(), securityScene(), volumeScene(), faultScene(), nodeScene(), imageScene(), garbageScene(), admissionScene(),
	}
}

// TestManifests finds what is misspelled without a board.
func TestManifests(t *testing.T) {
	names := map[string]bool{}
	texts := map[string]string{"everything": everythingPod, "critical": criticalPod, "victim": victimPod, "probed": probedPod("probed"), "hooking": hookingPod}
	for _, s := range scenes() {
		for name, text := range s.pods {
			if names[name] {
				t.Errorf("two pods are named %s", name)
			}
			names[name] = true
			texts[name] = text
		}
	}
	for name, text := range texts {
		var p v1.Pod
		if err := yaml.UnmarshalStrict([]byte(manifest(text)), &p); err != nil {
			t.Errorf("manifest of %s: %v", name, err)
			continue
		}
		if p.Name != name || p.Kind != "Pod" || len(p.Spec.Containers) == 0 {
			t.Errorf("manifest of %s: it is %s %s", name, p.Kind, p.Name)
		}
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			if !strings.HasPrefix(c.Image, "localhost/") {
				t.Errorf("%s: image %q", name, c.Image)
			}
		}
	}
	for _, text := range strings.Split(baseObjects+"---"+volumeObjects+"---\n"+changing("blue"), "---\n") {
		var o struct{ Kind string }
		if err := yaml.Unmarshal([]byte(text), &o); err != nil || o.Kind == "" {
			t.Errorf("object %q: %v", text, err)
		}
	}
	if len(programArchive(t)) == 0 || len(lateArchive(t)) == 0 {
		t.Error("no archives")
	}
}
