package podstatus

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)

// at is so many seconds after t0.
func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// basePod is a static pod that restarts always, with the containers named.
func basePod(names []string, mutators ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID, p.Generation = "web", "default", "uid-1", 1
	p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile}
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	for _, n := range names {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: n, Image: "img:1"})
	}
	for _, m := range mutators {
		m(p)
	}
	return p
}

func fromAPI(p *v1.Pod) { p.Annotations = nil }

func deleted(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: t0} }

func policy(policy v1.RestartPolicy) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.RestartPolicy = policy }
}

func inits(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, n := range names {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: n, Image: "img:1"})
		}
	}
}

func sidecars(names ...string) func(*v1.Pod) {
	always := v1.ContainerRestartPolicyAlways
	return func(p *v1.Pod) {
		for _, n := range names {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: n, Image: "img:1", RestartPolicy: &always})
		}
	}
}

func ephemerals(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, n := range names {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: n, Image: "img:1"},
			})
		}
	}
}

// rules gives a container a rule for exit code 42. Other ends leave it over,
// unless it is a sidecar.
func rules(name string, action v1.ContainerRestartRuleAction) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c, _ := pod.FindContainer(&p.Spec, name)
		if c.RestartPolicy == nil {
			c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
		}
		c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
		}}}
	}
}

// probed gives a container a startup and a readiness probe.
func probed(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c, _ := pod.FindContainer(&p.Spec, name)
		c.StartupProbe, c.ReadinessProbe = &v1.Probe{}, &v1.Probe{}
	}
}

// furnished gives the first container resources and mounts.
func furnished(p *v1.Pod) {
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")},
		Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("32Mi")},
	}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/data"},
		{Name: "etc", MountPath: "/etc/app", ReadOnly: true},
	}
}

// observed builds an observation in the order that the runtime seam promises.
func observed(parts ...any) *container.Observed {
	o := &container.Observed{UID: "uid-1", Namespace: "default", Name: "web"}
	for _, part := range parts {
		switch part := part.(type) {
		case container.Sandbox:
			o.Sandboxes = append(o.Sandboxes, part)
		case container.Container:
			o.Containers = append(o.Containers, part)
		}
	}
	slices.SortStableFunc(o.Sandboxes, func(a, b container.Sandbox) int { return cmp.Compare(b.Attempt, a.Attempt) })
	slices.SortStableFunc(o.Containers, func(a, b container.Container) int { return cmp.Compare(b.RestartCount, a.RestartCount) })
	return o
}

func sandbox(attempt uint32, ready bool) container.Sandbox {
	s := container.Sandbox{ID: "s" + string(rune('0'+attempt)), Attempt: attempt, Ready: ready, CreatedAt: at(1)}
	if ready {
		s.IPs = []string{"10.0.0.2", "10.0.0.3", "fd00::2"}
	}
	return s
}

func one(name string, count int, state container.State) container.Container {
	return container.Container{
		ID: name + "-" + string(rune('0'+count)), Name: name, SandboxID: "s0", State: state, CreatedAt: at(2),
		RestartCount: count, Image: "img:1", ImageRef: "docker.io/library/img@sha256:1", ImageID: "sha256:1",
	}
}

func created(name string, count int) container.Container {
	return one(name, count, container.StateCreated)
}

func running(name string, count, start int) container.Container {
	c := one(name, count, container.StateRunning)
	c.StartedAt = at(start)
	return c
}

func unknown(name string, count, start int) container.Container {
	c := one(name, count, container.StateUnknown)
	c.StartedAt = at(start)
	return c
}

func exited(name string, count, start, end int, code int32, reason string) container.Container {
	c := one(name, count, container.StateExited)
	c.StartedAt, c.FinishedAt, c.ExitCode, c.Reason = at(start), at(end), code, reason
	return c
}

// in moves a container to a sandbox.
func in(sandboxID string, c container.Container) container.Container {
	c.SandboxID = sandboxID
	return c
}
