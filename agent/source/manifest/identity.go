package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/tinylet/tinylet/agent/pod"
)

// agentAnnotations are set by the agent only. A manifest copied from a live pod
// may contain them.
var agentAnnotations = []string{
	pod.AnnotationSource,
	pod.AnnotationHash,
	pod.AnnotationMirror,
	pod.AnnotationFirstSeen,
}

// fingerprint returns the UID of a pod whose manifest has none: 32 hex digits,
// the shape of the kubelet's. It is a hash over the pod's name, namespace,
// labels, annotations and spec as written, the node and the origin.
//
// The kubelet hashes its internal pod type after defaulting, which changes with
// its version. This hash covers the manifest itself in canonical JSON (sorted
// keys, no space), so neither a new agent nor a new version of the API changes
// the identity of a running pod. A manifest that sets metadata.uid has the same
// identity under both agents.
func fingerprint(tree map[string]any, origin Origin) (types.UID, error) {
	canonical := map[string]any{"spec": tree["spec"]}
	metadata, _ := tree["metadata"].(map[string]any)
	for _, key := range []string{"name", "namespace", "labels", "annotations"} {
		if value := metadata[key]; value != nil {
			canonical[key] = value
		}
	}
	if annotations, ok := canonical["annotations"].(map[string]any); ok {
		for _, key := range agentAnnotations {
			delete(annotations, key)
		}
	}
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode(canonical); err != nil {
		return "", fmt.Errorf("encode pod for its UID: %w", err)
	}
	fmt.Fprintf(hash, "host:%s\n%s:%s\n", origin.NodeName, origin.Source, origin.Location)
	return types.UID(hex.EncodeToString(hash.Sum(nil)[:16])), nil
}

// identify turns a decoded pod into a static pod of this node, as
// pkg/kubelet/config/common.go does, and drops the fields that only an API
// server sets.
func identify(p *v1.Pod, uid types.UID, origin Origin) error {
	if p.Name == "" {
		return field.Required(field.NewPath("metadata", "name"), "the manifest of a static pod must name it")
	}
	if p.UID == "" {
		p.UID = uid
	}
	p.Name = staticName(p.Name, origin.NodeName)
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.ObjectMeta = metav1.ObjectMeta{
		Name: p.Name, Namespace: p.Namespace, UID: p.UID,
		Labels: p.Labels, Annotations: p.Annotations, CreationTimestamp: p.CreationTimestamp,
	}
	p.Status = v1.PodStatus{Phase: v1.PodPending}
	p.Spec.NodeName = origin.NodeName

	if p.Annotations == nil {
		p.Annotations = make(map[string]string, 2)
	}
	for _, key := range agentAnnotations {
		delete(p.Annotations, key)
	}
	p.Annotations[pod.AnnotationHash] = string(p.UID)
	p.Annotations[pod.AnnotationSource] = origin.Source
	if origin.Source == pod.SourceFile {
		tolerateNoExecute(p)
	}
	return nil
}

// staticName returns the name of a static pod on a node.
func staticName(name, nodeName string) string {
	return name + "-" + strings.ToLower(nodeName)
}

// tolerateNoExecute makes a static pod tolerate every NoExecute taint, for any time.
func tolerateNoExecute(p *v1.Pod) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	found := false
	for i := range p.Spec.Tolerations {
		if t := &p.Spec.Tolerations[i]; t.MatchToleration(&all) {
			*t, found = all, true
		}
	}
	if !found {
		p.Spec.Tolerations = append(p.Spec.Tolerations, all)
	}
}

// refOf returns the reference of the pod in a text, as far as it can be read.
// It returns only valid names, since the rest of the text may be anything.
func refOf(text []byte, origin Origin) pod.Ref {
	var named struct {
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &named); err != nil || named.Metadata.Name == "" {
		return pod.Ref{}
	}
	ref := pod.Ref{Namespace: named.Metadata.Namespace, Name: staticName(named.Metadata.Name, origin.NodeName)}
	if ref.Namespace == "" {
		ref.Namespace = metav1.NamespaceDefault
	}
	if len(validation.IsDNS1123Subdomain(ref.Name)) > 0 || len(validation.IsDNS1123Label(ref.Namespace)) > 0 {
		return pod.Ref{}
	}
	return ref
}
