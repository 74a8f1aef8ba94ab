package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func needs(request, limit string) v1.ResourceRequirements {
	list := func(text string) v1.ResourceList {
		if text == "" {
			return nil
		}
		q := resource.MustParse(text)
		return v1.ResourceList{v1.ResourceCPU: q, v1.ResourceMemory: q}
	}
	return v1.ResourceRequirements{Requests: list(request), Limits: list(limit)}
}

func TestQoS(t *testing.T) {
	onlyCPU := needs("", "1")
	delete(onlyCPU.Limits, v1.ResourceMemory)
	for _, tc := range []struct {
		name string
		init []v1.ResourceRequirements
		main []v1.ResourceRequirements
		pod  *v1.ResourceRequirements
		want v1.PodQOSClass
	}{
		{"nothing asked", nil, []v1.ResourceRequirements{{}}, nil, v1.PodQOSBestEffort},
		{"zeros are nothing", nil, []v1.ResourceRequirements{needs("0", "0")}, nil, v1.PodQOSBestEffort},
		{"limits alone", nil, []v1.ResourceRequirements{needs("", "1")}, nil, v1.PodQOSGuaranteed},
		{"a request of zero below a limit", nil, []v1.ResourceRequirements{needs("0", "1")}, nil, v1.PodQOSBurstable},
		{"requests are the limits", nil, []v1.ResourceRequirements{needs("1", "1000m")}, nil, v1.PodQOSGuaranteed},
		{"requests below the limits", nil, []v1.ResourceRequirements{needs("1", "2")}, nil, v1.PodQOSBurstable},
		{"requests alone", nil, []v1.ResourceRequirements{needs("1", "")}, nil, v1.PodQOSBurstable},
		{"cpu limited, memory not", nil, []v1.ResourceRequirements{onlyCPU}, nil, v1.PodQOSBurstable},
		{"one container without", nil, []v1.ResourceRequirements{needs("1", "1"), {}}, nil, v1.PodQOSBurstable},
		{"an init container without", []v1.ResourceRequirements{{}}, []v1.ResourceRequirements{needs("1", "1")}, nil, v1.PodQOSBurstable},
		{"all with", []v1.ResourceRequirements{needs("1", "1")}, []v1.ResourceRequirements{needs("2", "2")}, nil, v1.PodQOSGuaranteed},
		{"the pod's own decide, empty ones too", nil, []v1.ResourceRequirements{needs("1", "1")}, new(v1.ResourceRequirements{}), v1.PodQOSBestEffort},
		{"the pod's own decide", nil, []v1.ResourceRequirements{{}}, new(needs("1", "1")), v1.PodQOSGuaranteed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{}
			for _, r := range tc.init {
				p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Resources: r})
			}
			for _, r := range tc.main {
				p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: r})
			}
			p.Spec.Resources = tc.pod
			if got := QOSClass(p); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestGracePeriod(t *testing.T) {
	for _, tc := range []struct {
		name           string
		spec, deletion *int64
		want           time.Duration
	}{
		{"default", nil, nil, 30 * time.Second},
		{"spec", new(int64(5)), nil, 5 * time.Second},
		{"deletion wins", new(int64(5)), new(int64(1)), time.Second},
		{"zero", new(int64(0)), nil, 0},
		{"negative", new(int64(-7)), nil, 0},
		{"hostile", new(int64(1 << 62)), nil, 365 * 24 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionGracePeriodSeconds: tc.deletion}}
			p.Spec.TerminationGracePeriodSeconds = tc.spec
			if got := TerminationGracePeriod(p); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestProbeGracePeriod(t *testing.T) {
	for _, tc := range []struct {
		name                string
		spec, deletion, own *int64
		want                time.Duration
	}{
		{"the pod's", new(int64(5)), nil, nil, 5 * time.Second},
		{"the probe's", new(int64(5)), nil, new(int64(1)), time.Second},
		{"the probe's in a pod without", nil, nil, new(int64(0)), 0},
		{"the deletion's", new(int64(5)), new(int64(7)), new(int64(1)), 7 * time.Second},
		{"negative", nil, nil, new(int64(-1)), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionGracePeriodSeconds: tc.deletion}}
			p.Spec.TerminationGracePeriodSeconds = tc.spec
			if got := ProbeGracePeriod(p, tc.own); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "ns", Name: "web"}}
	if r := RefOf(p); r.String() != "ns/web" || r.FullName() != "web_ns" {
		t.Errorf("%s, %s", r, r.FullName())
	}
	if IsStatic(p) || IsMirror(p) || IsCritical(p) || Source(p) != SourceAPI {
		t.Error("a plain pod is from the API and nothing else")
	}
	p.Annotations = map[string]string{AnnotationSource: SourceFile}
	if !IsStatic(p) || !IsCritical(p) {
		t.Error("a pod from a file is static and critical")
	}
	p.Annotations = map[string]string{AnnotationMirror: "x", AnnotationSource: SourceAPI}
	if IsStatic(p) || !IsMirror(p) || !IsCritical(p) {
		t.Error("a mirror pod is critical and not static")
	}
	p.Annotations = nil
	p.Spec.Priority = new(SystemCriticalPriority)
	if !IsCritical(p) {
		t.Error("a pod of system priority is critical")
	}
	always := v1.ContainerRestartPolicyAlways
	if !IsRestartableInit(&v1.Container{RestartPolicy: &always}) || IsRestartableInit(&v1.Container{}) {
		t.Error("an init container is a sidecar by its restart policy Always alone")
	}
}

// TestNewer checks which of two pods with one full name is the current one.
func TestNewer(t *testing.T) {
	made := func(source, seen string, created, deleted int64) *v1.Pod {
		p := &v1.Pod{}
		p.Annotations = map[string]string{AnnotationSource: source, AnnotationFirstSeen: seen}
		if created > 0 {
			p.CreationTimestamp = metav1.Unix(created, 0)
		}
		if deleted > 0 {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(deleted, 0)}
		}
		return p
	}
	const early, late = "2026-03-01T12:00:00.5Z", "2026-03-01T12:00:01Z"
	for name, tt := range map[string]struct{ current, other *v1.Pod }{
		"static, seen later":                     {made("file", late, 0, 0), made("file", early, 0, 0)},
		"static, its manifest has an older date": {made("http", late, 1, 0), made("http", early, 9, 0)},
		"static, its manifest has a deletion":    {made("file", late, 0, 5), made("file", early, 0, 0)},
		"static, the other was not marked":       {made("file", early, 0, 0), made("file", "", 0, 0)},
		"static after one of the server":         {made("file", late, 0, 0), made("api", early, 9, 0)},
		"of the server after a static one":       {made("api", late, 1, 0), made("file", early, 9, 0)},
		"static, the server's is deleted":        {made("file", early, 0, 0), made("api", late, 9, 9)},
		"of the server, created later":           {made("api", early, 2, 0), made("api", late, 1, 0)},
		"of the server, the other is deleted":    {made("api", early, 1, 0), made("api", late, 2, 9)},
	} {
		if !Newer(tt.current, tt.other) || Newer(tt.other, tt.current) {
			t.Errorf("%s: Newer is %t, and the other way round %t", name, Newer(tt.current, tt.other), Newer(tt.other, tt.current))
		}
	}
	if p := made("file", early, 0, 0); Newer(p, p) {
		t.Error("a pod is newer than itself")
	}
}
