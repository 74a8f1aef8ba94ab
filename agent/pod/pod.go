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

// Newer reports whether p is the current one of two pods of one name: p takes
// the other's place, which ends or waits to. This is the one rule for everybody
// who has to choose between pods that the agent carries.
//
// A static pod is current if it was seen later: its timestamps say nothing,
// since a manifest need not have them. Of two pods of the API server it is the
// one that is not being deleted, or else the one that was created later.
func Newer(p, than *v1.Pod) bool {
	if deleting(p) != deleting(than) {
		return !deleting(p)
	}
	if IsStatic(p) || IsStatic(than) {
		return firstSeen(p).After(firstSeen(than))
	}
	return than.CreationTimestamp.Time.Before(p.CreationTimestamp.Time)
}

// deleting reports whether the API server has the pod deleted.
func deleting(p *v1.Pod) bool { return p.DeletionTimestamp != nil && !IsStatic(p) }

// firstSeen is when the agent has first seen the pod, the zero time if it is
// not known.
func firstSeen(p *v1.Pod) time.Time {
	t, err := time.Parse(time.RFC3339Nano, p.Annotations[AnnotationFirstSeen])
	if err != nil {
		return time.Time{}
	}
	return t
}
