package criconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSecurityContext pins what the golden files do not have: whether the pod's or
// the container's setting wins, and the influence of the node.
func TestSecurityContext(t *testing.T) {
	type sc = runtimeapi.LinuxContainerSecurityContext
	profile := func(kind runtimeapi.SecurityProfile_ProfileType, ref string) *runtimeapi.SecurityProfile {
		return &runtimeapi.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
	}
	seccomp := func(kind v1.SeccompProfileType, file *string) *v1.SeccompProfile {
		return &v1.SeccompProfile{Type: kind, LocalhostProfile: file}
	}
	for _, tc := range []struct {
		name string
		edit func(in *ContainerInput, own *v1.SecurityContext, pods *v1.PodSecurityContext)
		want func(*sc)
	}{
		{"nothing", nil, func(*sc) {}},
		{"the pod's", func(_ *ContainerInput, _ *v1.SecurityContext, pods *v1.PodSecurityContext) {
			pods.RunAsUser, pods.RunAsGroup, pods.SELinuxOptions = new(int64(1)), new(int64(2)), &v1.SELinuxOptions{Level: "s0", Type: "t"}
		}, func(s *sc) {
			s.RunAsUser, s.RunAsGroup = &runtimeapi.Int64Value{Value: 1}, &runtimeapi.Int64Value{Value: 2}
			s.SelinuxOptions = &runtimeapi.SELinuxOption{Level: "s0", Type: "t"}
		}},
		{"its own before the pod's", func(_ *ContainerInput, own *v1.SecurityContext, pods *v1.PodSecurityContext) {
			pods.RunAsUser, pods.RunAsGroup, pods.SELinuxOptions = new(int64(1)), new(int64(2)), &v1.SELinuxOptions{Level: "s0", Type: "t"}
			own.RunAsUser, own.RunAsGroup, own.SELinuxOptions = new(int64(0)), new(int64(0)), &v1.SELinuxOptions{Level: "s1"}
		}, func(s *sc) {
			s.RunAsGroup, s.SelinuxOptions = &runtimeapi.Int64Value{}, &runtimeapi.SELinuxOption{Level: "s1"}
		}},
		{"both before the image's", func(in *ContainerInput, own *v1.SecurityContext, _ *v1.PodSecurityContext) {
			in.Image, own.RunAsUser = &runtimeapi.Image{Username: "web"}, new(int64(7))
		}, func(s *sc) { s.RunAsUser = &runtimeapi.Int64Value{Value: 7} }},
		{"not root, by its own word", func(_ *ContainerInput, own *v1.SecurityContext, pods *v1.PodSecurityContext) {
			pods.RunAsNonRoot, own.RunAsNonRoot = new(true), new(false)
		}, func(*sc) {}},
		{"not root, by the image", func(in *ContainerInput, own *v1.SecurityContext, _ *v1.PodSecurityContext) {
			in.Image, own.RunAsNonRoot = &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 5}}, new(true)
		}, func(s *sc) { s.RunAsUser = &runtimeapi.Int64Value{Value: 5} }},
		{"groups", func(in *ContainerInput, _ *v1.SecurityContext, pods *v1.PodSecurityContext) {
			pods.SupplementalGroups, pods.FSGroup, pods.SupplementalGroupsPolicy = []int64{5, 6}, new(int64(4)), new(v1.SupplementalGroupsPolicyMerge)
			in.ExtraGroups = []int64{9}
		}, func(s *sc) { s.SupplementalGroups = []int64{4, 5, 6, 9} }},
		{"no paths are hidden", func(_ *ContainerInput, own *v1.SecurityContext, _ *v1.PodSecurityContext) {
			own.ProcMount = new(v1.UnmaskedProcMount)
		}, func(s *sc) { s.MaskedPaths, s.ReadonlyPaths = nil, nil }},
		{"no new privileges", func(_ *ContainerInput, own *v1.SecurityContext, _ *v1.PodSecurityContext) {
			own.AllowPrivilegeEscalation = new(false)
		}, func(s *sc) { s.NoNewPrivs = true }},
		{"seccomp by the node", func(in *ContainerInput, own *v1.SecurityContext, _ *v1.PodSecurityContext) {
			in.Node.SeccompDefault, own.Privileged = true, new(true)
		}, func(s *sc) { s.Privileged, s.Seccomp = true, profile(runtimeapi.SecurityProfile_RuntimeDefault, "") }},
		{"seccomp by the pod", func(in *ContainerInput, _ *v1.SecurityContext, pods *v1.PodSecurityContext) {
			in.Node.SeccompDefault, pods.SeccompProfile = true, seccomp(v1.SeccompProfileTypeUnconfined, nil)
		}, func(*sc) {}},
		{"seccomp of its own", func(in *ContainerInput, own *v1.SecurityContext, pods *v1.PodSecurityContext) {
			in.Node.SeccompProfileRoot = "/profiles"
			pods.SeccompProfile, own.SeccompProfile = seccomp(v1.SeccompProfileTypeUnconfined, nil), seccomp(v1.SeccompProfileTypeLocalhost, new("a/b.json"))
		}, func(s *sc) { s.Seccomp = profile(runtimeapi.SecurityProfile_Localhost, "/profiles/a/b.json") }},
		{"AppArmor by an annotation", func(in *ContainerInput, _ *v1.SecurityContext, pods *v1.PodSecurityContext) {
			in.Pod.Annotations = map[string]string{v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": "runtime/default"}
			pods.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
		}, func(s *sc) { s.Apparmor = profile(runtimeapi.SecurityProfile_RuntimeDefault, "") }},
		{"the processes of another container", func(in *ContainerInput, _ *v1.SecurityContext, _ *v1.PodSecurityContext) {
			in.TargetID = "id"
		}, func(s *sc) {
			s.NamespaceOptions.Pid, s.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, "id"
		}},
		{"those of the pod anyway", func(in *ContainerInput, _ *v1.SecurityContext, _ *v1.PodSecurityContext) {
			in.TargetID, in.Pod.Spec.ShareProcessNamespace = "id", new(true)
		}, func(s *sc) { s.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD }},
		{"those of the node", func(in *ContainerInput, _ *v1.SecurityContext, _ *v1.PodSecurityContext) {
			in.Pod.Spec.HostPID, in.Pod.Spec.HostIPC, in.Pod.Spec.HostNetwork = true, true, true
			in.Pod.Spec.HostUsers = new(true)
		}, func(s *sc) {
			node := runtimeapi.NamespaceMode_NODE
			s.NamespaceOptions.Pid, s.NamespaceOptions.Ipc, s.NamespaceOptions.Network = node, node, node
		}},
		{"users of its own", func(in *ContainerInput, _ *v1.SecurityContext, _ *v1.PodSecurityContext) {
			in.Pod.Spec.HostUsers, in.Userns = new(false), goldenUsers()
		}, func(s *sc) { s.NamespaceOptions.UsernsOptions = goldenUsers() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := envInput()
			own, pods := &v1.SecurityContext{}, &v1.PodSecurityContext{}
			want := &sc{
				RunAsUser: &runtimeapi.Int64Value{}, MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths,
				Seccomp: profile(runtimeapi.SecurityProfile_Unconfined, ""),
				NamespaceOptions: &runtimeapi.NamespaceOption{
					Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE},
				},
			}
			if tc.want(want); tc.edit != nil {
				tc.edit(&in, own, pods)
				in.Container.SecurityContext, in.Pod.Spec.SecurityContext = own, pods
			}
			config, err := ContainerConfig(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, config.GetLinux().GetSecurityContext(), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSandboxSecurity(t *testing.T) {
	p := podOf(v1.Container{Name: "c"})
	if s := sandboxOf(t, p); s.GetLinux().GetSecurityContext().GetPrivileged() {
		t.Error("privileged without a reason")
	}
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(1)), SupplementalGroups: []int64{2}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: "e", SecurityContext: &v1.SecurityContext{Privileged: new(true)},
	}}}
	sc := sandboxOf(t, p).GetLinux().GetSecurityContext()
	if !sc.GetPrivileged() {
		t.Error("an ephemeral container is privileged, its sandbox is not")
	}
	if diff := cmp.Diff([]int64{1, 9, 2}, sc.GetSupplementalGroups()); diff != "" {
		t.Error(diff)
	}
	p.Spec.HostUsers = new(false)
	if _, err := SandboxConfig(SandboxInput{Pod: p, Node: board()}); err == nil {
		t.Error("users of its own without any")
	}
}

func sandboxOf(t *testing.T, p *v1.Pod) *runtimeapi.PodSandboxConfig {
	t.Helper()
	config, err := SandboxConfig(SandboxInput{Pod: p, Node: board(), ExtraGroups: []int64{9}})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestStopSignal(t *testing.T) {
	for name, want := range map[v1.Signal]int32{
		"SIGTERM": 23, "SIGKILL": 13, "SIGRTMIN": 35, "SIGRTMIN+15": 50, "SIGRTMAX-14": 51, "SIGRTMAX": 65,
		"SIGNONE": 0, "": 0, "RUNTIME_DEFAULT": 0,
	} {
		c := &v1.Container{Lifecycle: &v1.Lifecycle{StopSignal: &name}}
		if got := stopSignal(c); int32(got) != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
	if got := stopSignal(&v1.Container{Lifecycle: &v1.Lifecycle{}}); got != 0 {
		t.Errorf("none: got %d", got)
	}
}
