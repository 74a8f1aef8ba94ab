package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestFieldValue(t *testing.T) {
	p := podOf()
	p.Name, p.Namespace, p.UID = "p", "ns", "u"
	p.Labels = map[string]string{"b": "2", "a": "1", "x.io/Y": "z"}
	p.Annotations = map[string]string{"Mixed/Case": "line\nand \"quote\" é\x01"}
	p.Spec.NodeName, p.Spec.ServiceAccountName = "n", "sa"
	v4, v6 := &Node{HostIPs: []string{"192.0.2.1", "2001:db8::1"}}, &Node{HostIPs: []string{"2001:db8::1"}}
	dual := []string{"10.0.0.1", "10.0.0.2", "2001:DB8:0::7"}
	for _, tc := range []struct {
		path string
		node *Node
		want string
	}{
		{"metadata.name", v4, "p"},
		{"metadata.namespace", v4, "ns"},
		{"metadata.uid", v4, "u"},
		{"metadata.labels", v4, "a=\"1\"\nb=\"2\"\nx.io/Y=\"z\""},
		{"metadata.labels['x.io/Y']", v4, "z"},
		{"metadata.labels['absent']", v4, ""},
		{"metadata.annotations", v4, `Mixed/Case="line\nand \"quote\" é\x01"`},
		{"metadata.annotations['Mixed/Case']", v4, "line\nand \"quote\" é\x01"},
		{"spec.nodeName", v4, "n"},
		{"spec.host", v4, "n"},
		{"spec.serviceAccountName", v4, "sa"},
		{"status.hostIP", v4, "192.0.2.1"},
		{"status.hostIPs", v4, "192.0.2.1,2001:db8::1"},
		{"status.podIP", v4, "10.0.0.1"},
		{"status.podIPs", v4, "10.0.0.1,2001:db8::7"},
		{"status.podIP", v6, "2001:db8::7"},
		{"status.podIPs", v6, "2001:db8::7,10.0.0.1"},
	} {
		if got, err := FieldValue(p, tc.node, dual, tc.path); err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v, want %q", tc.path, got, err, tc.want)
		}
	}
	for _, path := range []string{"", "metadata", "metadata.labels['']", "metadata.labels[a]", "status.phase", "spec['a']", "metadata.annotations['/']"} {
		if got, err := FieldValue(p, v4, dual, path); err == nil {
			t.Errorf("%s: got %q", path, got)
		}
	}
	if got, err := FieldValue(podOf(), v4, []string{"no address"}, "status.podIP"); err == nil {
		t.Errorf("got %q", got)
	}
}

func TestResourceValue(t *testing.T) {
	p := podOf(v1.Container{Name: "c"}, needs("1500m", "2", "1Mi", "3Mi"))
	p.Spec.Containers[1].Name = "d"
	p.Spec.Containers[1].Resources.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	p.Spec.InitContainers = []v1.Container{{Name: "i"}}
	for _, tc := range []struct{ container, resource, divisor, want string }{
		{"c", "limits.cpu", "0", "4"},
		{"c", "limits.memory", "1Mi", "400"},
		{"i", "limits.memory", "1Mi", "400"},
		{"c", "limits.ephemeral-storage", "1Gi", "2"},
		{"c", "requests.cpu", "0", "0"},
		{"c", "limits.hugepages-2Mi", "0", "0"},
		{"d", "limits.cpu", "1m", "2000"},
		{"d", "requests.cpu", "0", "2"},
		{"d", "limits.memory", "2Mi", "2"},
		{"d", "limits.hugepages-2Mi", "1Mi", "4"},
		{"d", "requests.hugepages-2Mi", "1Mi", "0"},
	} {
		ref := &v1.ResourceFieldSelector{Resource: tc.resource, Divisor: resource.MustParse(tc.divisor)}
		if got, err := ResourceValue(p, tc.container, ref, board()); err != nil || got != tc.want {
			t.Errorf("%s of %s: got %q, %v, want %s", tc.resource, tc.container, got, err, tc.want)
		}
	}
	if _, err := ResourceValue(p, "x", &v1.ResourceFieldSelector{Resource: "limits.cpu"}, board()); err == nil {
		t.Error("a container that is not there has limits")
	}
	for name, want := range map[string]bool{"limits.cpu": true, "requests.hugepages-1Gi": true, "limits.pods": false, "hugepages-1Gi": false, "x.cpu": false} {
		if got := SupportsResourceFieldRef(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
