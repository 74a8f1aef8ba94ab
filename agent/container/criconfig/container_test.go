package criconfig

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

func TestImageUser(t *testing.T) {
	for _, tc := range []struct {
		name  string
		image *runtimeapi.Image
		uid   *runtimeapi.Int64Value
		user  string
	}{
		{"unknown", nil, &runtimeapi.Int64Value{}, ""},
		{"none", &runtimeapi.Image{}, &runtimeapi.Int64Value{}, ""},
		{"number", &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 7}, Username: "x"}, &runtimeapi.Int64Value{Value: 7}, ""},
		{"name", &runtimeapi.Image{Username: "nobody"}, nil, "nobody"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(v1.Container{Name: "c"})
			in := inputFor(p, &p.Spec.Containers[0], board())
			in.Image = tc.image
			config, err := ContainerConfig(in)
			if err != nil {
				t.Fatal(err)
			}
			sc := config.GetLinux().GetSecurityContext()
			if (sc.GetRunAsUser() == nil) != (tc.uid == nil) || sc.GetRunAsUser().GetValue() != tc.uid.GetValue() || sc.GetRunAsUsername() != tc.user {
				t.Errorf("got %v and %q", sc.GetRunAsUser(), sc.GetRunAsUsername())
			}
		})
	}
}

func TestNodeSettings(t *testing.T) {
	p := podOf(needs("", "500m", "", ""))
	n := &Node{SeccompDefault: true, SingleProcessOOMKill: true}
	in := inputFor(p, &p.Spec.Containers[0], n)
	config, err := ContainerConfig(in)
	if err != nil {
		t.Fatal(err)
	}
	r, sc := config.GetLinux().GetResources(), config.GetLinux().GetSecurityContext()
	if r.GetCpuQuota() != 0 || r.GetCpuPeriod() != 0 || r.GetCpuShares() != 512 || len(r.GetUnified()) != 0 {
		t.Errorf("got %v", r)
	}
	if sc.GetSeccomp().GetProfileType() != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("got seccomp %v", sc.GetSeccomp())
	}
	n.CPUCFSQuota, n.CPUCFSQuotaPeriod = true, 20*time.Millisecond
	sandbox, err := SandboxConfig(SandboxInput{Pod: p, Node: n})
	if err != nil {
		t.Fatal(err)
	}
	if r := sandbox.GetLinux().GetResources(); r.GetCpuQuota() != 10000 || r.GetCpuPeriod() != 20000 {
		t.Errorf("got %v", r)
	}
}

func TestHostsMount(t *testing.T) {
	p := podOf(v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/etc/hosts"}}})
	p.Spec.Volumes = []v1.Volume{{Name: "v"}}
	in := inputFor(p, &p.Spec.Containers[0], board())
	config, err := ContainerConfig(in)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range config.GetMounts() {
		got = append(got, m.GetContainerPath()+" "+m.GetHostPath())
	}
	if diff := cmp.Diff([]string{"/etc/hosts " + in.Volumes["v"]}, got); diff != "" {
		t.Error(diff)
	}
}

func TestBackoffAnnotation(t *testing.T) {
	for backoff, want := range map[time.Duration]string{0: "", -time.Second: "", time.Nanosecond: "1", 10 * time.Second: "10", 10*time.Second + 1: "11"} {
		p := podOf(v1.Container{Name: "c"})
		in := inputFor(p, &p.Spec.Containers[0], board())
		in.Backoff = backoff
		config, err := ContainerConfig(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.GetAnnotations()[container.AnnotationBackoff]; got != want {
			t.Errorf("%v: got %q, want %q", backoff, got, want)
		}
	}
}

func TestAnnotationsOfHooks(t *testing.T) {
	p := podOf(v1.Container{Name: "c", Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}})
	config, err := ContainerConfig(inputFor(p, &p.Spec.Containers[0], board()))
	if err != nil {
		t.Fatal(err)
	}
	if got := config.GetAnnotations()[container.AnnotationPreStopHandler]; got != `{"exec":{"command":["x"]}}` {
		t.Errorf("got %s", got)
	}
}

func TestQuotient(t *testing.T) {
	for _, tc := range []struct {
		q, divisor string
		name       v1.ResourceName
		want       string
	}{
		{"0", "0", v1.ResourceCPU, "0"},
		{"1m", "0", v1.ResourceCPU, "1"},
		{"1500m", "0", v1.ResourceCPU, "2"},
		{"1500m", "1m", v1.ResourceCPU, "1500"},
		{"1Gi", "1Mi", v1.ResourceMemory, "1024"},
		{"1025Ki", "1Mi", v1.ResourceMemory, "2"},
		{"9223372036854775807", "2", v1.ResourceMemory, "4611686018427387904"},
		{"1Gi", "-1", v1.ResourceMemory, "1073741824"},
	} {
		if got := divideRoundingUp(resource.MustParse(tc.q), resource.MustParse(tc.divisor), tc.name); got != tc.want {
			t.Errorf("%s / %s = %s, want %s", tc.q, tc.divisor, got, tc.want)
		}
	}
}

func TestLogNames(t *testing.T) {
	ref := pod.Ref{UID: "u", Namespace: "ns", Name: "p"}
	if got := LogLink(ref, "c", "id"); got != "p_ns_c-id.log" {
		t.Errorf("got %s", got)
	}
	ref.Name = strings.Repeat("x", 300)
	if got := LogLink(ref, "c", "id"); len(got) != 255 || !strings.HasSuffix(got, "x.log") {
		t.Errorf("got %d characters", len(got))
	}
	if got := LogPath("c", 12); got != "c/12.log" {
		t.Errorf("got %s", got)
	}
	p := &v1.Pod{}
	p.UID, p.Namespace, p.Name = "u", "ns", "p"
	if got := LogDirectory(p, &Node{PodLogsDir: "/x"}); got != "/x/ns_p_u" {
		t.Errorf("got %s", got)
	}
	// A manifest may give any UID.
	p.UID = "u/../../../etc"
	if got := LogDirectory(p, &Node{}); got != "/var/log/pods/ns_p_u_.._.._.._etc" {
		t.Errorf("got %s", got)
	}
	if got := PodCgroup(p, &Node{}); got != "/kubepods/besteffort/podu_.._.._.._etc" {
		t.Errorf("got %s", got)
	}
	if got := LogPath("../c", 0); got != ".._c/0.log" {
		t.Errorf("got %s", got)
	}
}

// FuzzEnv: whatever the references, a name appears once and in the order of
// the spec.
func FuzzEnv(f *testing.F) {
	f.Add("A", "$(B)", "B", "$(A)", "A", "x$(B)")
	f.Fuzz(func(t *testing.T, n1, v1v, n2, v2v, n3, v3v string) {
		p := podOf(v1.Container{Name: "c", Env: []v1.EnvVar{{Name: n1, Value: v1v}, {Name: n2, Value: v2v}, {Name: n3, Value: v3v}}})
		config, err := ContainerConfig(inputFor(p, &p.Spec.Containers[0], board()))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, kv := range config.GetEnvs() {
			if seen[kv.GetKey()] {
				t.Errorf("%q twice", kv.GetKey())
			}
			seen[kv.GetKey()] = true
		}
		if !seen[n1] || !seen[n2] || !seen[n3] || config.GetEnvs()[0].GetKey() != n1 {
			t.Errorf("got %v", config.GetEnvs())
		}
	})
}
