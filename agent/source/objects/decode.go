package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/config/document"
)

// decoded is the result of decoding one file.
type decoded struct {
	objects  map[Key]Object
	warnings []string // about objects that were accepted
	place    string   // the document, as the beginning of a message; empty in a file with one
}

// decode decodes a whole file: YAML or JSON, several documents, v1 Lists. One
// bad object rejects the whole file, since it may be half-written.
func decode(data []byte) (*decoded, error) {
	documents, err := document.Split(data, maxDocuments)
	if err != nil {
		return nil, err
	}
	d := &decoded{objects: make(map[Key]Object, len(documents))}
	for i, text := range documents {
		if len(documents) > 1 {
			d.place = fmt.Sprintf("document %d: ", i+1)
		}
		if err := d.document(text); err != nil {
			return nil, fmt.Errorf("%s%w", d.place, err)
		}
	}
	return d, nil
}

func (d *decoded) warn(what string, err error) {
	if len(d.warnings) < 10 {
		d.warnings = append(d.warnings, fmt.Sprintf("%s%s: %v", d.place, what, err))
	}
}

func (d *decoded) document(document []byte) error {
	text, warning, err := toJSON(document)
	if err != nil {
		return err
	}
	if warning != nil {
		d.warn("using the last of duplicate keys", warning)
	}
	return d.object(text, true)
}

// toJSON converts one document to JSON text. The warning is for a duplicate
// key, of which the last one counts.
func toJSON(document []byte) (text []byte, warning, err error) {
	if trimmed := bytes.TrimSpace(document); len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(trimmed) {
		return trimmed, nil, nil
	}
	// Reject unrelated files before the YAML parser builds a tree of them.
	if !bytes.Contains(document, []byte("kind")) {
		return nil, nil, errors.New("not an object: no kind")
	}
	if marks(document) > maxMarks {
		return nil, nil, fmt.Errorf("more than %d lines and values: write large data as binaryData, or in JSON", maxMarks)
	}
	text, warning = yaml.YAMLToJSONStrict(document)
	if warning != nil {
		text, err = yaml.YAMLToJSON(document)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("parse YAML: %w", err)
	}
	if len(text) > 2*maxDocument { // aliases may have expanded it
		return nil, nil, fmt.Errorf("converts to %d bytes of JSON, more than %d", len(text), 2*maxDocument)
	}
	return text, warning, nil
}

// object decodes one object, or the objects of a list.
func (d *decoded) object(text []byte, top bool) error {
	if len(text) == 0 || text[0] != '{' {
		return errors.New("not an object with apiVersion and kind")
	}
	var h metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &h); err != nil {
		return fmt.Errorf("read apiVersion and kind: %w", err)
	}
	if h.APIVersion == nodev1.SchemeGroupVersion.String() && h.Kind == KindClass {
		return add(d, text, h.Kind, checkClass)
	}
	if h.APIVersion != "v1" {
		return notReadable(h)
	}
	switch h.Kind {
	case KindConfigMap:
		return add(d, text, h.Kind, checkConfigMap)
	case KindSecret:
		return add(d, text, h.Kind, checkSecret)
	case KindClaim:
		return add(d, text, h.Kind, func(*v1.PersistentVolumeClaim) error { return nil })
	case KindVolume:
		return add(d, text, h.Kind, checkVolume)
	case "List":
		if top {
			return d.list(text)
		}
	}
	return notReadable(h)
}

func notReadable(h metav1.TypeMeta) error {
	return fmt.Errorf("kind %q of apiVersion %q is not supported in files: only v1 %s, %s, %s, %s and List of them, and %s %s are",
		h.Kind, h.APIVersion, KindConfigMap, KindSecret, KindClaim, KindVolume, nodev1.SchemeGroupVersion, KindClass)
}

func (d *decoded) list(text []byte) error {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &list); err != nil {
		return fmt.Errorf("read items of List: %w", err)
	}
	if len(list.Items) > maxDocuments {
		return errMany
	}
	for i, item := range list.Items {
		if err := d.object(bytes.TrimSpace(item), false); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	return nil
}

// add decodes one object into its type and checks it. Unknown fields are ignored with a
// warning, as an API server does. So is a second object with the same key.
func add[T any, P interface {
	*T
	Object
}](d *decoded, text []byte, kind string, check func(P) error) error {
	if kind == KindClaim || kind == KindVolume {
		if err := checkNumbers(text); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	o := P(new(T))
	strict, err := kjson.UnmarshalStrict(text, o)
	if err != nil {
		return fmt.Errorf("decode %s: %w", kind, err)
	}
	k, err := identify(o, kind)
	if err != nil {
		return err
	}
	if err := check(o); err != nil {
		return fmt.Errorf("%s: %w", k, err)
	}
	if len(strict) > 0 {
		d.warn(k.String(), errors.Join(strict[:min(3, len(strict))]...))
	}
	if _, twice := d.objects[k]; twice {
		d.warn(k.String(), errors.New("duplicate in this file, using the first"))
		return nil
	}
	if len(d.objects) == maxDocuments {
		return errMany
	}
	d.objects[k] = o
	return nil
}

// Bounds of a file.
const (
	// maxFile is the maximum size of a file in bytes.
	maxFile = 10 << 20
	// maxDocument is the maximum size of a document in bytes.
	maxDocument = document.MaxSize
	// maxDocuments bounds the documents of a file, and the objects in its
	// lists.
	maxDocuments = 1000
	// maxMarks bounds the lines, commas and brackets of a YAML document.
	maxMarks = 300_000
)

var errMany = fmt.Errorf("more than %d documents or objects", maxDocuments)

// marks counts the characters that can begin a value: an upper bound of the
// number of values.
func marks(text []byte) int {
	n := 0
	for _, b := range text {
		if b == '\n' || b == ',' || b == '[' || b == '{' {
			n++
		}
	}
	return n
}
