package container

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// Labels and annotations of CRI objects. The names are the kubelet's
// (k8s.io/kubelet/pkg/types and pkg/kubelet/kuberuntime/labels.go), so that
// tinylet adopts the pods of a kubelet, and a kubelet those of tinylet.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                    = "io.kubernetes.container.ports"
	AnnotationPodDeletionGracePeriod   = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationPodTerminationGrace      = "io.kubernetes.pod.terminationGracePeriod"

	// AnnotationBackoff is tinylet's own: the crash loop backoff, in whole
	// seconds from the container's exit to its next start. So the backoff
	// survives a restart of the agent without a file of its own.
	AnnotationBackoff = "tinylet.dev/backoff-seconds"
	// AnnotationBoot is also tinylet's own: the kernel's boot ID when the sandbox was
	// created. A sandbox of an earlier boot has lost its addresses, ports and mounts.
	AnnotationBoot = "tinylet.dev/boot-id"
)

// IdentityOf returns the pod that a CRI object belongs to, by its labels. ok is false if
// one of them is missing, because then neither tinylet nor a kubelet created the object.
func IdentityOf(labels map[string]string) (id pod.Ref, ok bool) {
	id = pod.Ref{
		UID:       types.UID(labels[LabelPodUID]),
		Namespace: labels[LabelPodNamespace],
		Name:      labels[LabelPodName],
	}
	return id, id.UID != "" && id.Name != "" && id.Namespace != ""
}

// parseSeconds parses an annotation as whole seconds. It returns def if the annotation is
// absent, negative, above 2^31-1 or not a number.
func parseSeconds(annotations map[string]string, key string, def time.Duration) time.Duration {
	n, err := strconv.ParseInt(annotations[key], 10, 32)
	if err != nil || n < 0 {
		return def
	}
	return time.Duration(n) * time.Second
}

// GracePeriodOf returns the pod's termination grace period from a container's annotations.
// It is negative if they do not have a valid one.
func GracePeriodOf(annotations map[string]string) time.Duration {
	return parseSeconds(annotations, AnnotationPodTerminationGrace, -1)
}
