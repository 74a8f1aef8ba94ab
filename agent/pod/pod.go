// Package pod is a pure leaf about one pod: its identity, where it came
// from, its QoS class, the periods that follow from its spec, and what its
// status comes to in a word. It holds no state and talks to nothing.
package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations by which the kubelet marks a pod's origin
// (pkg/kubelet/types/pod_update.go).
const (
	AnnotationSource    = "kubernetes.io/config.source"
	AnnotationHash      = "kubernetes.io/config.hash"
	AnnotationMirror    = "kubernetes.io/config.mirror"
	AnnotationFirstSeen = "kubernetes.io/config.seen"
)

// Config sources, the values of AnnotationSource.
const (
	SourceFile = "file"
	SourceHTTP = "http"
	SourceAPI  = "api"
	// SourceRestore is the journal's, which remembers pods of the API server:
	// they are marked as such.
	SourceRestore = "restore"
)

// SystemCriticalPriority is the lowest priority of a critical pod
// (pkg/apis/scheduling/types.go).
const SystemCriticalPriority int32 = 2_000_000_000

// Ref names a pod in logs, events and lists.
type Ref struct {
	UID       types.UID
	Namespace string
	Name      string
}

// RefOf is the pod's Ref.
func RefOf(p *v1.Pod) Ref {
	return Ref{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
}

// String is namespace/name.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// FullName is the kubelet's full name, name_namespace: what two pods on one
// node must not share at one time. The UID, not the full name, identifies a
// pod.
func (r Ref) FullName() string { return r.Name + "_" + r.Namespace }

// Source is the config source that the pod came from; api where no
// annotation says otherwise.
func Source(p *v1.Pod) string {
	if s := p.Annotations[AnnotationSource]; s != "" {
		return s
	}
	return SourceAPI
}

// IsStatic says whether the pod comes from a file or from HTTP.
func IsStatic(p *v1.Pod) bool { return Source(p) != SourceAPI }

// IsMirror says whether the pod is the API shadow of a static pod.
func IsMirror(p *v1.Pod) bool {
	_, ok := p.Annotations[AnnotationMirror]
	return ok
}

// IsCritical says whether the pod may preempt others and is evicted last:
// static and mirror pods and those of system priority
// (pkg/kubelet/types/pod_update.go).
func IsCritical(p *v1.Pod) bool {
	if IsStatic(p) || IsMirror(p) {
		return true
	}
	return p.Spec.Priority != nil && *p.Spec.Priority >= SystemCriticalPriority
}

// GracePeriod is how long the pod's containers get between the stop signal
// and the kill: the deletion's if the pod is being deleted, else the spec's,
// else Kubernetes' default of 30 s.
func GracePeriod(p *v1.Pod) time.Duration {
	switch {
	case p.DeletionGracePeriodSeconds != nil:
		return grace(*p.DeletionGracePeriodSeconds)
	case p.Spec.TerminationGracePeriodSeconds != nil:
		return grace(*p.Spec.TerminationGracePeriodSeconds)
	}
	return v1.DefaultTerminationGracePeriodSeconds * time.Second
}

// ProbeGracePeriod is GracePeriod for a container that is killed for a probe,
// with the probe's own terminationGracePeriodSeconds; nil where it has none.
// The grace of the pod's deletion goes before it (setTerminationGracePeriod
// in pkg/kubelet/kuberuntime/kuberuntime_container.go).
func ProbeGracePeriod(p *v1.Pod, own *int64) time.Duration {
	if own == nil || p.DeletionGracePeriodSeconds != nil {
		return GracePeriod(p)
	}
	return grace(*own)
}

func grace(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), maxGraceSeconds)) * time.Second
}

// MinGracePeriod is what a container gets between the stop signal and the
// kill though its grace period is zero or used up by its hook
// (minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime).
const MinGracePeriod = 2 * time.Second

// maxGraceSeconds keeps a hostile grace period inside time.Duration and
// CRI's arithmetic: one year.
const maxGraceSeconds = 365 * 24 * 3600

// Newer says which of two pods with one name takes the other's place: the one
// that is not being deleted, or else the one that was made later.
func Newer(p, than *v1.Pod) bool {
	if (p.DeletionTimestamp == nil) != (than.DeletionTimestamp == nil) {
		return p.DeletionTimestamp == nil
	}
	return than.CreationTimestamp.Time.Before(p.CreationTimestamp.Time)
}
