package manifest_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/source/manifest"
)

func ptr[T any](value T) *T { return &value }

// base is a pod with a bit of everything that the table below breaks.
func base() *v1.Pod {
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "first", Image: "first:1"}},
			Containers: []v1.Container{{
				Name: "main", Image: "main:1",
				Ports:          []v1.ContainerPort{{ContainerPort: 80, Name: "http"}},
				Env:            []v1.EnvVar{{Name: "A", Value: "a"}},
				VolumeMounts:   []v1.VolumeMount{{Name: "data", MountPath: "/data"}},
				LivenessProbe:  &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}},
				ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80)}}},
				Resources: v1.ResourceRequirements{
					Limits:   v1.ResourceList{"memory": resource.MustParse("64Mi")},
					Requests: v1.ResourceList{"memory": resource.MustParse("32Mi")},
				},
			}},
			Volumes: []v1.Volume{{Name: "data"}, {Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}}},
		},
	}
}

func TestValidate(t *testing.T) {
	long := strings.Repeat("a", 64)
	hostPath := func(path string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Volumes[1].HostPath.Path = path }
	}
	main := func(change func(*v1.Container)) func(*v1.Pod) {
		return func(p *v1.Pod) { change(&p.Spec.Containers[0]) }
	}
	spec := func(change func(*v1.PodSpec)) func(*v1.Pod) {
		return func(p *v1.Pod) { change(&p.Spec) }
	}
	volume := func(source v1.VolumeSource) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Volumes[0].VolumeSource = source }
	}
	uid := func(uid types.UID) func(*v1.Pod) { return func(p *v1.Pod) { p.UID = uid } }

	for _, tt := range []struct {
		name   string
		change func(*v1.Pod)
		want   string // "" for a valid pod
	}{
		{"base", func(*v1.Pod) {}, ""},

		{"name in capitals", func(p *v1.Pod) { p.Name = "Web" }, "metadata.name: Invalid"},
		{"name with a path", func(p *v1.Pod) { p.Name = "../web" }, "metadata.name: Invalid"},
		{"name too long", func(p *v1.Pod) { p.Name = strings.Repeat("a", 250) }, "metadata.name: Invalid"},
		{"name too long for the log folder", func(p *v1.Pod) { p.Name = strings.Repeat("a", 220) }, "log directory's name"},
		{"namespace with a dot", func(p *v1.Pod) { p.Namespace = "a.b" }, "metadata.namespace: Invalid"},
		{"namespace with a path", func(p *v1.Pod) { p.Namespace = "../x" }, "metadata.namespace: Invalid"},
		{"UID of a UUID", uid("0D3e7f5c-6d0b-4c76-8a53-5bbf6c2f0001"), ""},
		{"UID with a path", uid("../../etc"), "metadata.uid: Invalid"},
		{"UID of dots", uid(".."), "metadata.uid: Invalid"},
		{"UID with a slash", uid("a/b"), "metadata.uid: Invalid"},
		{"UID with a line end", uid("a\n"), "metadata.uid: Invalid"},
		{"UID with an underscore", uid("a_b"), "metadata.uid: Invalid"},
		{"UID with a dash at its start", uid("-rf"), "metadata.uid: Invalid"},
		{"UID too long", uid(types.UID(long)), "metadata.uid: Invalid"},
		{"label key", func(p *v1.Pod) { p.Labels = map[string]string{"a b": ""} }, "metadata.labels[a b]: Invalid"},
		{"label value", func(p *v1.Pod) { p.Labels = map[string]string{"a": "b c"} }, "metadata.labels[a]: Invalid"},
		{"annotation key", func(p *v1.Pod) { p.Annotations = map[string]string{"a b": ""} }, "metadata.annotations[a b]: Invalid"},
		{"annotations too large", func(p *v1.Pod) { p.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)} }, "metadata.annotations: Too long"},

		{"restart policy", spec(func(s *v1.PodSpec) { s.RestartPolicy = "Sometimes" }), `spec.restartPolicy: Unsupported value: "Sometimes"`},
		{"DNS policy", spec(func(s *v1.PodSpec) { s.DNSPolicy = "X" }), "spec.dnsPolicy: Unsupported"},
		{"negative grace period, which counts as 1", spec(func(s *v1.PodSpec) { s.TerminationGracePeriodSeconds = ptr(int64(-1)) }), ""},
		{"hook that sleeps as long as a negative grace period", func(p *v1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = ptr(int64(-5))
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}}
		}, ""},
		{"hook that sleeps longer than a negative grace period", func(p *v1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = ptr(int64(-5))
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 2}}}
		}, "less than terminationGracePeriodSeconds (1)"},
		{"grace period zero", spec(func(s *v1.PodSpec) { s.TerminationGracePeriodSeconds = ptr(int64(0)) }), ""},
		{"deadline zero", spec(func(s *v1.PodSpec) { s.ActiveDeadlineSeconds = ptr(int64(0)) }), "spec.activeDeadlineSeconds: Invalid"},
		{"runtime class", spec(func(s *v1.PodSpec) { s.RuntimeClassName = ptr("A B") }), "spec.runtimeClassName: Invalid"},
		{"readiness gate", spec(func(s *v1.PodSpec) { s.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "a b"}} }), "spec.readinessGates[0].conditionType: Invalid"},
		{"overhead", spec(func(s *v1.PodSpec) { s.Overhead = v1.ResourceList{"cpu": resource.MustParse("-1")} }), "spec.overhead[cpu]: Invalid"},
		{"hostname", spec(func(s *v1.PodSpec) { s.Hostname = "a\nb" }), "spec.hostname: Invalid"},
		{"subdomain", spec(func(s *v1.PodSpec) { s.Subdomain = "A" }), "spec.subdomain: Invalid"},
		{"hostname override too long", spec(func(s *v1.PodSpec) { s.HostnameOverride = ptr(long + "a") }), "spec.hostnameOverride: Too long"},
		{"host alias", spec(func(s *v1.PodSpec) {
			s.HostAliases = []v1.HostAlias{{IP: "1.2.3.4\n5.6.7.8 evil", Hostnames: []string{"a"}}}
		}), "spec.hostAliases[0].ip: Invalid"},
		{"host alias name", spec(func(s *v1.PodSpec) { s.HostAliases = []v1.HostAlias{{IP: "::1", Hostnames: []string{"a b"}}} }), "spec.hostAliases[0].hostnames[0]: Invalid"},
		{"nameserver", spec(func(s *v1.PodSpec) { s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"dns"}} }), "spec.dnsConfig.nameservers[0]: Invalid"},
		{"many nameservers", spec(func(s *v1.PodSpec) {
			s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"::1", "::2", "::3", "::4"}}
		}), "spec.dnsConfig.nameservers: Too many"},
		{"no nameserver", spec(func(s *v1.PodSpec) { s.DNSPolicy = v1.DNSNone }), "spec.dnsConfig.nameservers: Required"},
		{"search domain", spec(func(s *v1.PodSpec) { s.DNSConfig = &v1.PodDNSConfig{Searches: []string{".", "a.b.", "a\nb"}} }), "spec.dnsConfig.searches[2]: Invalid"},
		{"resolver option", spec(func(s *v1.PodSpec) { s.DNSConfig = &v1.PodDNSConfig{Options: []v1.PodDNSConfigOption{{Name: "a\nb"}}} }), "spec.dnsConfig.options[0].name: Invalid"},
		{"user", spec(func(s *v1.PodSpec) { s.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr(int64(-1))} }), "spec.securityContext.runAsUser: Invalid"},
		{"group beyond 31 bits", spec(func(s *v1.PodSpec) { s.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(1) << 31)} }), "spec.securityContext.fsGroup: Invalid"},
		{"sysctl", spec(func(s *v1.PodSpec) {
			s.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net/../../x"}}}
		}), "spec.securityContext.sysctls[0].name: Invalid"},
		{"seccomp profile's path", spec(func(s *v1.PodSpec) {
			s.SecurityContext = &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr("../../shadow")}}
		}), "spec.securityContext.seccompProfile.localhostProfile: Invalid"},
		{"seccomp profile without a path", main(func(c *v1.Container) {
			c.SecurityContext = &v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost}}
		}), "securityContext.seccompProfile.localhostProfile: Required"},
		{"privileged without escalation", main(func(c *v1.Container) {
			c.SecurityContext = &v1.SecurityContext{Privileged: ptr(true), AllowPrivilegeEscalation: ptr(false)}
		}), "securityContext.allowPrivilegeEscalation: Invalid"},

		{"no containers", spec(func(s *v1.PodSpec) { s.Containers = nil }), "spec.containers: Required"},
		{"container name", main(func(c *v1.Container) { c.Name = "../x" }), "spec.containers[0].name: Invalid"},
		{"no container name", main(func(c *v1.Container) { c.Name = "" }), "spec.containers[0].name: Required"},
		{"container name twice", spec(func(s *v1.PodSpec) { s.InitContainers[0].Name = "main" }), "spec.initContainers[0].name: Duplicate"},
		{"no image", main(func(c *v1.Container) { c.Image = " " }), "spec.containers[0].image: Required"},
		{"pull policy", main(func(c *v1.Container) { c.ImagePullPolicy = "Maybe" }), "spec.containers[0].imagePullPolicy: Unsupported"},
		{"termination message policy", main(func(c *v1.Container) { c.TerminationMessagePolicy = "X" }), "terminationMessagePolicy: Unsupported"},
		{"termination message path", main(func(c *v1.Container) { c.TerminationMessagePath = "/dev/../x" }), "terminationMessagePath: Invalid"},
		{"container restart policy", spec(func(s *v1.PodSpec) { s.InitContainers[0].RestartPolicy = ptr(v1.ContainerRestartPolicy("X")) }), "spec.initContainers[0].restartPolicy: Unsupported"},
		{"port zero", main(func(c *v1.Container) { c.Ports[0].ContainerPort = 0 }), "ports[0].containerPort: Invalid"},
		{"port too high", main(func(c *v1.Container) { c.Ports[0].HostPort = 65536 }), "ports[0].hostPort: Invalid"},
		{"port protocol", main(func(c *v1.Container) { c.Ports[0].Protocol = "ICMP" }), "ports[0].protocol: Unsupported"},
		{"port name", main(func(c *v1.Container) { c.Ports[0].Name = "HTTP" }), "ports[0].name: Invalid"},
		{"host IP", main(func(c *v1.Container) { c.Ports[0].HostIP = "here" }), "ports[0].hostIP: Invalid"},
		{"host port twice", main(func(c *v1.Container) {
			c.Ports = []v1.ContainerPort{{ContainerPort: 1, HostPort: 9}, {ContainerPort: 2, HostPort: 9}}
		}), "ports[1].hostPort: Duplicate"},
		{"host port on the host's network", func(p *v1.Pod) {
			p.Spec.HostNetwork = true
			p.Spec.Containers[0].Ports[0].HostPort = 81
		}, "ports[0].hostPort: Invalid"},
		{"variable name", main(func(c *v1.Container) { c.Env[0].Name = "A=B" }), "env[0].name: Invalid"},
		{"no variable name", main(func(c *v1.Container) { c.Env[0].Name = "" }), "env[0].name: Required"},
		{"variable with a zero byte", main(func(c *v1.Container) { c.Env[0].Value = "a\x00b" }), "env[0].value: Invalid"},
		{"variable from nothing", main(func(c *v1.Container) { c.Env[0] = v1.EnvVar{Name: "A", ValueFrom: &v1.EnvVarSource{}} }), "env[0].valueFrom: Invalid"},
		{"variable from an unknown field", main(func(c *v1.Container) {
			c.Env[0] = v1.EnvVar{Name: "A", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.color"}}}
		}), "fieldRef.fieldPath: Unsupported"},
		{"variable from a label", main(func(c *v1.Container) {
			c.Env[0] = v1.EnvVar{Name: "A", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['a.b/c']"}}}
		}), ""},
		{"variable from a resource", main(func(c *v1.Container) {
			c.Env[0] = v1.EnvVar{Name: "A", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.color"}}}
		}), "resourceFieldRef.resource: Unsupported"},
		{"request above the limit", main(func(c *v1.Container) { c.Resources.Requests["memory"] = resource.MustParse("65Mi") }), "resources.requests[memory]: Invalid"},
		{"negative limit", main(func(c *v1.Container) { c.Resources.Limits["cpu"] = resource.MustParse("-1m") }), "resources.limits[cpu]: Invalid"},
		{"resource name", main(func(c *v1.Container) { c.Resources.Limits["a b"] = resource.MustParse("1") }), "resources.limits[a b]: Invalid"},
		{"mount of nothing", main(func(c *v1.Container) { c.VolumeMounts[0].Name = "none" }), `volumeMounts[0].name: Not found: "none"`},
		{"mount point twice", main(func(c *v1.Container) { c.VolumeMounts = append(c.VolumeMounts, c.VolumeMounts[0]) }), "volumeMounts[1].mountPath: Invalid"},
		{"no mount point", main(func(c *v1.Container) { c.VolumeMounts[0].MountPath = "" }), "volumeMounts[0].mountPath: Required"},
		{"sub-path upwards", main(func(c *v1.Container) { c.VolumeMounts[0].SubPath = "a/../../b" }), "volumeMounts[0].subPath: Invalid"},
		{"sub-path from the root", main(func(c *v1.Container) { c.VolumeMounts[0].SubPathExpr = "/etc" }), "volumeMounts[0].subPathExpr: Invalid"},
		{"sub-path that only looks upwards", main(func(c *v1.Container) { c.VolumeMounts[0].SubPath = "a/..b" }), ""},
		{"mount propagation", main(func(c *v1.Container) { c.VolumeMounts[0].MountPropagation = ptr(v1.MountPropagationMode("X")) }), "mountPropagation: Unsupported"},
		{"device of nothing", main(func(c *v1.Container) { c.VolumeDevices = []v1.VolumeDevice{{Name: "none", DevicePath: "/dev/x"}} }), "volumeDevices[0].name: Not found"},

		{"probe of nothing", main(func(c *v1.Container) { c.LivenessProbe.Exec = nil }), "livenessProbe: Required"},
		{"probe of two things", main(func(c *v1.Container) { c.LivenessProbe.GRPC = &v1.GRPCAction{Port: 1} }), "livenessProbe: Forbidden"},
		{"probe period", main(func(c *v1.Container) { c.LivenessProbe.PeriodSeconds = -1 }), "livenessProbe.periodSeconds: Invalid"},
		{"liveness after two successes", main(func(c *v1.Container) { c.LivenessProbe.SuccessThreshold = 2 }), "livenessProbe.successThreshold: Invalid"},
		{"readiness after two successes", main(func(c *v1.Container) { c.ReadinessProbe.SuccessThreshold = 2 }), ""},
		{"probe port", main(func(c *v1.Container) { c.ReadinessProbe.HTTPGet.Port = intstr.FromInt32(0) }), "readinessProbe.httpGet.port: Invalid"},
		{"probe scheme", main(func(c *v1.Container) { c.ReadinessProbe.HTTPGet.Scheme = "FTP" }), "readinessProbe.httpGet.scheme: Unsupported"},
		{"probe header", main(func(c *v1.Container) {
			c.ReadinessProbe.HTTPGet.HTTPHeaders = []v1.HTTPHeader{{Name: "a\r\nb"}}
		}), "httpHeaders[0].name: Invalid"},
		{"exec of nothing", main(func(c *v1.Container) { c.LivenessProbe.Exec.Command = nil }), "livenessProbe.exec.command: Required"},
		{"hook of nothing", main(func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}} }), "lifecycle.preStop: Required"},
		{"hook that sleeps too long", main(func(c *v1.Container) {
			c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 31}}}
		}), "lifecycle.preStop.sleep.seconds: Invalid"},
		{"probe of an init container", spec(func(s *v1.PodSpec) { s.InitContainers[0].ReadinessProbe = s.Containers[0].ReadinessProbe }), "spec.initContainers[0].readinessProbe: Forbidden"},
		{"probe of a sidecar", spec(func(s *v1.PodSpec) {
			s.InitContainers[0].RestartPolicy = ptr(v1.ContainerRestartPolicyAlways)
			s.InitContainers[0].ReadinessProbe = s.Containers[0].ReadinessProbe
		}), ""},

		{"volume name", spec(func(s *v1.PodSpec) { s.Volumes[1].Name = "../x" }), "spec.volumes[1].name: Invalid"},
		{"volume name twice", spec(func(s *v1.PodSpec) { s.Volumes[1].Name = "data" }), "spec.volumes[1].name: Duplicate"},
		{"volume of two sources", spec(func(s *v1.PodSpec) { s.Volumes[1].EmptyDir = &v1.EmptyDirVolumeSource{} }), "spec.volumes[1].emptyDir: Forbidden"},
		{"host path upwards", hostPath("/srv/../etc"), "hostPath.path: Invalid"},
		{"host path with dots in a name", hostPath("/srv/..data"), ""},
		{"relative host path", hostPath("srv"), "hostPath.path: Invalid"},
		{"no host path", hostPath(""), "hostPath.path: Required"},
		{"host path type", spec(func(s *v1.PodSpec) { s.Volumes[1].HostPath.Type = ptr(v1.HostPathType("X")) }), "hostPath.type: Unsupported"},
		{"emptyDir medium", volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "Tape"}}), "emptyDir.medium: Unsupported"},
		{"emptyDir size", volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: ptr(resource.MustParse("-1"))}}), "emptyDir.sizeLimit: Invalid"},
		{"downward API path", volume(v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "../x", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}), "downwardAPI.items[0].path: Invalid"},
		{"downward API reserved path", volume(v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "..data", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}), "downwardAPI.items[0].path: Invalid"},
		{"downward API field", volume(v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "x", FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}}), "fieldRef.fieldPath: Unsupported"},
		{"file mode", volume(v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{DefaultMode: ptr(int32(0o1777))}}), "downwardAPI.defaultMode: Invalid"},
		{"image volume", volume(v1.VolumeSource{Image: &v1.ImageVolumeSource{}}), "image.reference: Required"},

		{"resource claim", spec(func(s *v1.PodSpec) { s.ResourceClaims = []v1.PodResourceClaim{{Name: "a"}} }), "spec.resourceClaims: Forbidden"},
		{"scheduling gate", spec(func(s *v1.PodSpec) { s.SchedulingGates = []v1.PodSchedulingGate{{Name: "a"}} }), "spec.schedulingGates: Forbidden"},
		{"ephemeral container", spec(func(s *v1.PodSpec) {
			s.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "e"}}}
		}), "spec.ephemeralContainers: Forbidden"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := base()
			tt.change(p)
			text, err := yaml.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			m := manifest.Parse(text, board)
			if tt.want == "" {
				if len(m.Problems) > 0 || len(m.Pods) != 1 {
					t.Errorf("%d pods, problems %v", len(m.Pods), m.Problems)
				}
				return
			}
			if len(m.Pods) != 0 || len(m.Problems) != 1 || m.Problems[0].Warning {
				t.Fatalf("%d pods, problems %v", len(m.Pods), m.Problems)
			}
			if got := m.Problems[0].Err.Error(); !strings.Contains(got, tt.want) {
				t.Errorf("problem %q, want %q in it", got, tt.want)
			}
		})
	}
}

// TestQuantities covers quantities that would take hours to parse.
func TestQuantities(t *testing.T) {
	for _, tt := range []struct {
		quantity string
		ok       bool
	}{
		{"64Mi", true}, {"1500m", true}, {"2E", true}, {"2Ei", true}, {"1e6", true}, {"1E6", true}, {"5e-3", true}, {"\"1e+2\"", true},
		{"'1e-200000000'", false}, {"'1e2000000000'", false}, {"' 1e2000000000 '", false}, {"+.1e2000000000", false}, {"'1e9999999999999999999'", false}, {"'" + strings.Repeat("9", 100) + "'", false},
	} {
		t.Run(tt.quantity, func(t *testing.T) {
			m := manifest.Parse([]byte(webYAML+"    resources: {limits: {memory: "+tt.quantity+"}}\n"), board)
			if ok := m.Complete(); ok != tt.ok {
				t.Errorf("complete: %v, problems %v", ok, m.Problems)
			}
		})
	}
	t.Run("as a number in JSON", func(t *testing.T) {
		m := manifest.Parse([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"volumes":[{"name":"a","emptyDir":{"sizeLimit":1e-200000000}}]}}`), board)
		if m.Complete() {
			t.Error("accepted")
		}
	})
}
