package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// object is the JSON text of one pod. place is its position in a list.
type object struct {
	text  []byte
	place string
	// typed means that the list implies the kind of its items.
	typed bool
}

// toJSON converts one document to JSON text. The warning is for a duplicate
// key, of which the last one counts, as in the kubelet.
func toJSON(document []byte) (text []byte, warning, err error) {
	if err := checkSize(document); err != nil {
		return nil, nil, err
	}
	if trimmed := bytes.TrimSpace(document); len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(trimmed) {
		return trimmed, nil, nil
	}
	// Reject unrelated files, such as logs or source code, before the YAML
	// parser builds a tree of them.
	if !bytes.Contains(document, []byte("kind")) {
		return nil, nil, errors.New("not a manifest: no kind")
	}
	text, warning = yaml.YAMLToJSONStrict(document)
	if warning != nil {
		text, err = yaml.YAMLToJSON(document)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("parse YAML: %w", err)
	}
	return text, warning, checkSize(text) // aliases may have expanded it
}

// podsIn returns the pods in an object: the object itself or the items of a
// list.
func podsIn(text []byte) ([]object, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("not an object with apiVersion and kind")
	}
	var list struct {
		metav1.TypeMeta
		Items []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &list.TypeMeta); err != nil {
		return nil, fmt.Errorf("read apiVersion and kind: %w", err)
	}
	if list.APIVersion != "v1" || (list.Kind != "Pod" && list.Kind != "PodList" && list.Kind != "List") {
		return nil, notAPod(list.TypeMeta)
	}
	if list.Kind == "Pod" {
		return []object{{text: text}}, nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &list); err != nil {
		return nil, fmt.Errorf("read items of %s: %w", list.Kind, err)
	}
	if len(list.Items) > maxItems {
		return nil, field.TooMany(field.NewPath("items"), len(list.Items), maxItems)
	}
	objects := make([]object, 0, len(list.Items))
	for i, item := range list.Items {
		objects = append(objects, object{
			text:  item,
			place: fmt.Sprintf("item %d", i+1),
			typed: list.Kind == "PodList",
		})
	}
	return objects, nil
}

func notAPod(h metav1.TypeMeta) error {
	switch {
	case h.Kind == "":
		return errors.New("kind is missing: only v1 Pod and lists of it are supported")
	case h.APIVersion == "":
		return fmt.Errorf("apiVersion is missing for kind %q", h.Kind)
	default:
		return fmt.Errorf("kind %q of apiVersion %q is not a v1 Pod or a list of it", h.Kind, h.APIVersion)
	}
}

// decodePod decodes one pod. Unknown and duplicate fields are ignored with a
// warning that names them: the kubelet ignores them too, and a manifest for a
// newer version must run on an older one.
func decodePod(o object) (p *v1.Pod, warning, err error) {
	if len(o.text) == 0 || o.text[0] != '{' {
		return nil, nil, errors.New("not an object")
	}
	p = &v1.Pod{}
	strict, err := kjson.UnmarshalStrict(o.text, p)
	if err != nil {
		return nil, nil, fmt.Errorf("decode v1 Pod: %w", err)
	}
	untyped := p.Kind == "" && p.APIVersion == "" && o.typed
	if !untyped && (p.Kind != "Pod" || p.APIVersion != "v1") {
		return nil, nil, notAPod(p.TypeMeta)
	}
	p.Kind, p.APIVersion = "Pod", "v1"
	if len(strict) > 0 {
		warning = utilerrors.NewAggregate(strict)
	}
	return p, warning, nil
}
