package container

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Labels and annotations of CRI objects. The names are the kubelet's
// (k8s.io/kubelet/pkg/types and pkg/kubelet/kuberuntime/labels.go), so that
// either agent adopts what the other started.
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

	// AnnotationBackoff is ours: whole seconds to wait after this container's
	// end before its next start. The wait then survives a restart of the
	// agent and needs no file of its own.
	AnnotationBackoff = "tinylet.dev/backoff-seconds"
	// AnnotationBoot is ours, too: the kernel's boot ID when a sandbox was made.
	// What one of an earlier boot held (addresses, ports, mounts) went with it.
	AnnotationBoot = "tinylet.dev/boot-id"
)

// Identity is the pod that a CRI object belongs to, by its labels.
type Identity struct {
	UID       types.UID
	Namespace string
	Name      string
}

// IdentityOf reads the pod's identity from an object's labels; ok is false
// for what no kubelet made.
func IdentityOf(labels map[string]string) (id Identity, ok bool) {
	id = Identity{
		UID:       types.UID(labels[LabelPodUID]),
		Namespace: labels[LabelPodNamespace],
		Name:      labels[LabelPodName],
	}
	return id, id.UID != "" && id.Name != "" && id.Namespace != ""
}

// seconds reads a whole number of seconds from an annotation, or def.
func seconds(annotations map[string]string, key string, def time.Duration) time.Duration {
	n, err := strconv.ParseInt(annotations[key], 10, 32)
	if err != nil || n < 0 {
		return def
	}
	return time.Duration(n) * time.Second
}

// GraceOf reads the pod's termination grace period from a container's
// annotations; negative where they do not say.
func GraceOf(annotations map[string]string) time.Duration {
	return seconds(annotations, AnnotationPodTerminationGrace, -1)
}
