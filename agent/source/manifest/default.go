package manifest

import (
	"cmp"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Default applies the defaults of the v1 API to a pod
// (pkg/apis/core/v1/defaults.go and zz_generated.defaults.go), so that readers
// need not handle nil. It omits the defaults of volume types that tinylet does
// not mount. It is idempotent.
func Default(p *v1.Pod) {
	spec := &p.Spec
	initial(&spec.DNSPolicy, v1.DNSClusterFirst)
	initial(&spec.RestartPolicy, v1.RestartPolicyAlways)
	initial(&spec.SchedulerName, v1.DefaultSchedulerName)
	pointTo(&spec.SecurityContext, v1.PodSecurityContext{})
	pointTo(&spec.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
	if *spec.TerminationGracePeriodSeconds < 0 {
		one := int64(1) // Convert_v1_Pod_To_core_Pod
		spec.TerminationGracePeriodSeconds = &one
	}
	pointTo(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)

	initial(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName

	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for c, kind := range pod.Containers(spec) {
		defaultContainer(c)
		if kind != pod.Ephemeral {
			defaultRequests(&c.Resources)
			if spec.HostNetwork {
				defaultHostPorts(c.Ports)
			}
		}
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
		defaultPodHugePages(spec)
		defaultPodRequests(spec)
	}
}

// initial sets a field that is zero.
func initial[T comparable](field *T, value T) {
	*field = cmp.Or(*field, value)
}

// pointTo sets a pointer that is nil.
func pointTo[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func defaultContainer(c *v1.Container) {
	initial(&c.ImagePullPolicy, pullPolicy(c.Image))
	initial(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	initial(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		initial(&c.Ports[i].Protocol, v1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				pointTo(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle != nil {
		for _, handler := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if handler != nil {
				defaultHTTPGet(handler.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *v1.Probe) {
	if p == nil {
		return
	}
	initial(&p.TimeoutSeconds, 1)
	initial(&p.PeriodSeconds, 10)
	initial(&p.SuccessThreshold, 1)
	initial(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		pointTo(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(action *v1.HTTPGetAction) {
	if action != nil {
		initial(&action.Path, "/")
		initial(&action.Scheme, v1.URISchemeHTTP)
	}
}

func defaultFieldRef(ref *v1.ObjectFieldSelector) {
	if ref != nil {
		initial(&ref.APIVersion, "v1")
	}
}

// defaultHostPorts sets hostPort to containerPort in a pod with hostNetwork,
// where they are the same.
func defaultHostPorts(ports []v1.ContainerPort) {
	for i := range ports {
		initial(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

func defaultVolume(v *v1.Volume) {
	if len(setFields(&v.VolumeSource)) == 0 {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		pointTo(&v.HostPath.Type, v1.HostPathUnset)
	}
	if v.Image != nil {
		initial(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.Secret != nil {
		pointTo(&v.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		pointTo(&v.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		pointTo(&v.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		defaultFiles(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
}

func defaultProjected(p *v1.ProjectedVolumeSource) {
	pointTo(&p.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if api := p.Sources[i].DownwardAPI; api != nil {
			defaultFiles(api.Items)
		}
		if token := p.Sources[i].ServiceAccountToken; token != nil {
			pointTo(&token.ExpirationSeconds, 3600)
		}
	}
}

func defaultFiles(items []v1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

// pullPolicy returns Always for an image with the tag latest, explicit or
// implied, and IfNotPresent for any other tag, a digest, or a reference that cannot
// be pulled, such as the ID of a local image.
func pullPolicy(image string) v1.PullPolicy {
	name, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(name).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}
