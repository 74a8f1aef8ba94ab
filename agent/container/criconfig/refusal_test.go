package criconfig

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestContainerRefusals has the text that users search for, where a kubelet
// has it too.
func TestContainerRefusals(t *testing.T) {
	from := func(s v1.EnvVarSource) func(*ContainerInput) {
		return func(in *ContainerInput) { in.Container.Env = []v1.EnvVar{{Name: "X", ValueFrom: &s}} }
	}
	field := func(path string) func(*ContainerInput) {
		return from(v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}})
	}
	mount := func(m v1.VolumeMount) func(*ContainerInput) {
		return func(in *ContainerInput) { m.Name = "v"; in.Container.VolumeMounts = []v1.VolumeMount{m} }
	}
	own := func(sc v1.SecurityContext) func(*ContainerInput) {
		return func(in *ContainerInput) { in.Container.SecurityContext = &sc }
	}
	nonRoot := func(image *runtimeapi.Image) func(*ContainerInput) {
		return func(in *ContainerInput) {
			in.Image, in.Container.SecurityContext = image, &v1.SecurityContext{RunAsNonRoot: new(true)}
		}
	}
	for _, tc := range []struct {
		name string
		edit func(*ContainerInput)
		want string
	}{
		{"restart count", func(in *ContainerInput) { in.RestartCount = -1 }, "restart count -1"},
		{"aliases without a hosts file", func(in *ContainerInput) {
			in.HostsFile, in.Pod.Spec.HostAliases = "", []v1.HostAlias{{IP: "192.0.2.1"}}
		}, "spec.hostAliases"},

		{"no such volume", func(in *ContainerInput) {
			in.Container.VolumeMounts = []v1.VolumeMount{{Name: "v"}, {Name: "w"}}
		}, `cannot find volume "w" to mount into container "c"`},
		{"subPath without its place", mount(v1.VolumeMount{SubPath: "s"}), `failed to prepare subPath for volumeMount "v" of container "c"`},
		{"subPath, absolute", mount(v1.VolumeMount{SubPath: "/s"}), "error SubPath `/s` must not be an absolute path"},
		{"subPath, upward", mount(v1.VolumeMount{SubPath: "a/../b"}), "unable to provision SubPath `a/../b`: must not contain '..'"},
		{"subPathExpr without its variables", mount(v1.VolumeMount{SubPathExpr: "$(B)/$(A)/$(B)"}), "missing value for A, B"},
		{"propagation", mount(v1.VolumeMount{MountPropagation: new(v1.MountPropagationMode("Sideways"))}), `invalid MountPropagation mode: "Sideways"`},
		{"propagation to the node", mount(v1.VolumeMount{MountPropagation: new(v1.MountPropagationBidirectional)}), "only to privileged containers"},
		{"read-only below, but not there", mount(v1.VolumeMount{RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)}),
			`volume "v" requested recursive read-only mode, but it is not read-only`},
		{"read-only below, and propagating", mount(v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible), MountPropagation: new(v1.MountPropagationHostToContainer)}),
			`not compatible with propagation "HostToContainer"`},
		{"read-only below, not possible", mount(v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)}), "not supported by the runtime"},
		{"read-only below, somehow", mount(v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyMode("Maybe"))}), `unknown recursive read-only mode "Maybe"`},

		{"no config map", from(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "no"}}}), `configmap "no" not found`},
		{"no key in it", from(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "m"}, Key: "no"}}), "couldn't find key no in ConfigMap ns/m"},
		{"no secret", from(v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "no"}}}), `secret "no" not found`},
		{"no key in it, too", from(v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Key: "no"}}), "couldn't find key no in Secret ns/s"},
		{"no config map as a whole", func(in *ContainerInput) {
			in.Container.EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "no"}}}}
		}, `configmap "no" not found`},
		{"no secret as a whole", func(in *ContainerInput) {
			in.Container.EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "no"}}}}
		}, `secret "no" not found`},
		{"no volume of a file", from(v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "no"}}), `cannot find the volume "no" referenced by FileKeyRef`},
		{"no file", from(v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "no", Key: "A"}}), "couldn't parse env file"},
		{"a bad file", from(v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "bad", Key: "A"}}), "couldn't parse env file"},
		{"no key in a file", from(v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "env", Key: "no"}}), `environment variable key "no" not found in file "env"`},
		{"unknown field", field("spec.hostname"), "field label not supported: spec.hostname"},
		{"field of another API", from(v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v2", FieldPath: "metadata.name"}}), "unsupported pod version: v2"},
		{"a bad key", field("metadata.labels['a b']"), "invalid key subscript in metadata.labels['a b']"},
		{"no pod address", func(in *ContainerInput) { in.PodIPs = nil; field("status.podIP")(in) }, "the pod has no address yet"},
		{"no node address", func(in *ContainerInput) { in.Node.HostIPs = nil; field("status.hostIP")(in) }, "the node has no address yet"},
		{"unknown resource", from(v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.pods"}}), "unsupported container resource : limits.pods"},
		{"unknown container", from(v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "y", Resource: "limits.cpu"}}), "container y not found"},

		{"root by the pod", func(in *ContainerInput) {
			in.Pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(0))}
		}, `container's runAsUser breaks non-root policy (pod: "p_ns(u)", container: c)`},
		{"root by the image", nonRoot(&runtimeapi.Image{}), `container has runAsNonRoot and image will run as root (pod: "p_ns(u)", container: c)`},
		{"perhaps root by the image", nonRoot(&runtimeapi.Image{Username: "web"}), "image has non-numeric user (web), cannot verify user is non-root"},
		{"nobody by the image", nonRoot(&runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: -1}}), "image has an invalid user id (-1)"},
		{"no seccomp profile", own(v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost}}),
			"localhostProfile must be set if seccompProfile type is Localhost."},
		{"an unknown seccomp profile", own(v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: "Newer"}}), `unknown seccomp profile type: "Newer"`},
		{"a seccomp profile without a type, where the node has a default", func(in *ContainerInput) {
			in.Node.SeccompDefault = true
			in.Pod.Spec.SecurityContext = &v1.PodSecurityContext{SeccompProfile: new(v1.SeccompProfile)}
		}, `unknown seccomp profile type: ""`},
		{"AppArmor by a bad annotation, beside none at all for the pod", func(in *ContainerInput) {
			in.Pod.Annotations = map[string]string{v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + in.Container.Name: "odd"}
			in.Pod.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}}
		}, `unknown apparmor profile type: "odd"`},
		{"a seccomp profile elsewhere", own(v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("../../etc/x")}}),
			"outside the node's profiles"},
		{"no AppArmor profile", own(v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost}}),
			"missing localhost apparmor profile name"},
		{"odd AppArmor profile", own(v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: "Odd"}}), `unknown apparmor profile type: "Odd"`},
		{"odd policy of groups", func(in *ContainerInput) {
			in.Pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicy("Odd"))}
		}, "unsupported supplementalGroupsPolicy: Odd"},
		{"users of its own, without any", func(in *ContainerInput) { in.Pod.Spec.HostUsers = new(false) }, "runtime does not support user namespaces"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := envInput()
			tc.edit(&in)
			_, err := ContainerConfig(in)
			if err == nil || !strings.Contains(err.Error(), `config of container "c": `) {
				t.Fatalf("got %v, want container c", err)
			}
			config := new(ConfigError)
			if !errors.As(err, &config) || !strings.Contains(config.Message, tc.want) {
				t.Errorf("got %v, want a ConfigError with %q", err, tc.want)
			}
		})
	}
}
