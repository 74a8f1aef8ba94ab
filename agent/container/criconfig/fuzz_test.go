package criconfig

import (
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/randfill"

	"github.com/tinylet/tinylet/agent/pod"
)

// FuzzPod: no pod whatever breaks the agent, and the same pod twice gives the
// same configs.
func FuzzPod(f *testing.F) {
	f.Add([]byte("a pod of a hostile manifest"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &v1.Pod{}
		filler := randfill.NewFromGoFuzz(data).NumElements(0, 3).NilChance(0.4).MaxDepth(12).Funcs(
			func(q *resource.Quantity, c randfill.Continue) {
				*q = *resource.NewMilliQuantity(c.Int63(), resource.DecimalSI)
			},
		)
		filler.Fill(&p.ObjectMeta.Name)
		filler.Fill(&p.Labels)
		filler.Fill(&p.Annotations)
		filler.Fill(&p.Spec)
		n := board()
		one, err := SandboxConfig(SandboxInput{Pod: p, Node: n, Userns: goldenUsers()})
		two, again := SandboxConfig(SandboxInput{Pod: p, Node: n, Userns: goldenUsers()})
		if (err == nil) != (again == nil) || !proto.Equal(one, two) {
			t.Errorf("two configs of one sandbox: %v, %v and %v, %v", one, err, two, again)
		}
		SandboxWarnings(p, n)
		PodResources(p, n)
		ParentCgroups([]*v1.Pod{p, p}, n)
		for c := range pod.Containers(&p.Spec) {
			in := inputFor(p, c, n)
			in.Userns, in.Image = goldenUsers(), &runtimeapi.Image{Username: "x"}
			in.ConfigMaps = map[string]*v1.ConfigMap{"": {Data: map[string]string{"": "", "a": "b"}}}
			ContainerWarnings(&in)
			_, _ = SubPaths(in)
			EnvRefs(c)
			one, err := ContainerConfig(in)
			two, again := ContainerConfig(in)
			if (err == nil) != (again == nil) || !proto.Equal(one, two) {
				t.Errorf("two configs of container %q: %v, %v and %v, %v", c.Name, one, err, two, again)
			}
			for _, r := range []v1.ResourceName{"limits.cpu", "requests.memory"} {
				_, _ = ResourceValue(p, c.Name, &v1.ResourceFieldSelector{Resource: string(r)}, n)
			}
		}
	})
}
