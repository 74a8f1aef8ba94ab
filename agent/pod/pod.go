// Package pod has pure functions about one pod: its identity, its config source,
// its containers, resources and QoS class, the periods that follow from its spec, and
// a summary of its status. It holds no state and does no I/O.
package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// Annotations with which the kubelet marks a pod's config source
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
	// SourceRestore is the config source of the journal, which stores pods of
	// the API server. Its pods are annotated with SourceAPI.
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

// RefOf returns the pod's Ref.
func RefOf(p *v1.Pod) Ref {
	return Ref{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
}

// String returns namespace/name.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// FullName returns the kubelet's full name, name_namespace. Two pods on one node
// must not have the same full name at one time. The UID, not the full name,
// identifies a pod.
func (r Ref) FullName() string { return r.Name + "_" + r.Namespace }

// Source returns the config source of the pod, SourceAPI if it has no source
// annotation.
func Source(p *v1.Pod) string {
	if s := p.Annotations[AnnotationSource]; s != "" {
		return s
	}
	return SourceAPI
}

// IsStatic reports whether the pod comes from a file or from HTTP.
func IsStatic(p *v1.Pod) bool { return Source(p) != SourceAPI }

// IsMirror reports whether the pod is the mirror pod of a static pod.
func IsMirror(p *v1.Pod) bool {
	_, ok := p.Annotations[AnnotationMirror]
	return ok
}

// IsCritical reports whether the pod is critical, so that it may preempt others
// and is evicted last: static and mirror pods, and pods of system priority
// (pkg/kubelet/types/pod_update.go).
func IsCritical(p *v1.Pod) bool {
	return IsStatic(p) || IsMirror(p) || ptr.Deref(p.Spec.Priority, 0) >= SystemCriticalPriority
}

// Tolerates reports whether one of the pod's tolerations matches a taint. The numeric
// operators Lt and Gt are alpha in 1.36 and match no taint.
func Tolerates(p *v1.Pod, taint *v1.Taint) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t v1.Toleration) bool {
		return t.ToleratesTaint(klog.Logger{}, taint, false)
	})
}

// TerminationGracePeriod returns the termination grace period of the pod's containers: the
// deletion's if the pod is being deleted, else the spec's, else Kubernetes'
// default of 30 s.
func TerminationGracePeriod(p *v1.Pod) time.Duration {
	switch {
	case p.DeletionGracePeriodSeconds != nil:
		return grace(*p.DeletionGracePeriodSeconds)
	case p.Spec.TerminationGracePeriodSeconds != nil:
		return grace(*p.Spec.TerminationGracePeriodSeconds)
	}
	return v1.DefaultTerminationGracePeriodSeconds * time.Second
}

// ProbeGracePeriod returns the grace period of a container that is killed because
// of a failed probe. own is the probe's terminationGracePeriodSeconds, or nil. The
// grace period of a deletion takes precedence over it (setTerminationGracePeriod
// in pkg/kubelet/kuberuntime/kuberuntime_container.go).
func ProbeGracePeriod(p *v1.Pod, own *int64) time.Duration {
	if own == nil || p.DeletionGracePeriodSeconds != nil {
		return TerminationGracePeriod(p)
	}
	return grace(*own)
}

func grace(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), maxGraceSeconds)) * time.Second
}

// MinGracePeriod is the minimum time between the stop signal and the kill, even
// if the grace period is zero or the preStop hook has used it up
// (minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime).
const MinGracePeriod = 2 * time.Second

// maxGraceSeconds bounds a grace period to one year, so that a hostile one does
// not overflow time.Duration or the runtime's arithmetic.
const maxGraceSeconds = 365 * 24 * 3600

// Newer reports whether p is the current one of two pods with one full name: p
// replaces the other, which is terminating or will be. All packages that choose
// between pods with one full name must use this rule.
//
// If the API server deletes one of the two pods, the other is current. Otherwise,
// if one of them is static, the one that was seen later is current: manifests need
// not have timestamps. Of two pods of the API server it is the one that was
// created later.
func Newer(p, than *v1.Pod) bool {
	if deleting(p) != deleting(than) {
		return !deleting(p)
	}
	if IsStatic(p) || IsStatic(than) {
		return firstSeen(p).After(firstSeen(than))
	}
	return than.CreationTimestamp.Time.Before(p.CreationTimestamp.Time)
}

// deleting reports whether the API server has marked the pod for deletion.
func deleting(p *v1.Pod) bool { return p.DeletionTimestamp != nil && !IsStatic(p) }

// firstSeen returns the time in AnnotationFirstSeen, or the zero time if there is
// none.
func firstSeen(p *v1.Pod) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, p.Annotations[AnnotationFirstSeen])
	return t
}
