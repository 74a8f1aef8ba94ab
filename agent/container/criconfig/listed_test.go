package criconfig

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// TestListsStaySmall checks that a node full of pods can be listed whose labels,
// annotations, hooks and ports are as large as the API server accepts.
func TestListsStaySmall(t *testing.T) {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "p", "default", "0123"
	p.Annotations = map[string]string{"big": strings.Repeat("x", 200<<10), "kubernetes.io/ingress-bandwidth": "1M"}
	p.Labels = map[string]string{"app": "web"}
	for i := range 2000 {
		p.Labels[fmt.Sprintf("example.com/%0250d", i)] = strings.Repeat("x", 63)
	}
	for i := range 20 {
		c := v1.Container{Name: fmt.Sprintf("c%d", i), Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 80}}}
		c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{strings.Repeat("x", 60<<10)}}}}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	size := func(all ...map[string]string) (n int) {
		for _, m := range all {
			for k, v := range m {
				n += len(k) + len(v)
			}
		}
		return n
	}
	s, err := SandboxConfig(SandboxInput{Pod: p, Node: &Node{}, BootID: "boot"})
	if err != nil {
		t.Fatal(err)
	}
	if n := size(s.Labels, s.Annotations); n > 2*sandboxShare+1000 {
		t.Errorf("the runtime lists %d bytes of the sandbox", n)
	}
	if s.Labels["app"] != "web" || s.Labels[container.LabelPodUID] != "0123" || s.Annotations["kubernetes.io/ingress-bandwidth"] != "1M" ||
		s.Annotations[container.AnnotationBoot] != "boot" || len(s.Labels) < 50 {
		t.Errorf("what is short is not kept: %d labels, annotations %.200v", len(s.Labels), s.Annotations)
	}
	all := 0
	for i := range p.Spec.Containers {
		a, err := containerAnnotations(&ContainerInput{Pod: p, Container: &p.Spec.Containers[i]})
		if err != nil {
			t.Fatal(err)
		}
		if a[container.AnnotationPorts] == "" {
			t.Error("ports that are few are not kept")
		}
		all += size(a)
	}
	if all > containerShare+len(p.Spec.Containers)*1000 {
		t.Errorf("the runtime lists %d bytes of the containers", all)
	}
}

func TestShortest(t *testing.T) {
	all := map[string]string{"a": "1234", "b": "123", "c": "123"}
	for share, want := range map[int]map[string]string{
		13: all, 12: {"b": "123", "c": "123"}, 7: {"b": "123"}, 3: {},
	} {
		if got := fitEntries(all, share); !maps.Equal(got, want) {
			t.Errorf("of %d bytes are kept %v, want %v", share, got, want)
		}
	}
	if fitEntries(nil, 1) != nil {
		t.Error("of none something is kept")
	}
}
