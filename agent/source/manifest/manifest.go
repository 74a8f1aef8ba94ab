// Package manifest parses pod manifests into static pods. It splits a stream
// into documents, and decodes, names, defaults and validates each pod. It is
// pure: the same text from the same origin gives the same pods with the same
// UIDs on every start of the agent.
//
// It accepts what the kubelet accepts (pkg/kubelet/config/common.go) and more:
// YAML or JSON, several documents in one stream, and lists of pods.
package manifest

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/document"
	"github.com/tinylet/tinylet/agent/pod"
)

// MaxSize is the maximum size of a manifest in bytes, the kubelet's limit.
const MaxSize = 10 << 20

// maxPods bounds the documents of a manifest, and the pods of all its documents.
// It bounds the memory for the pods and problems of one text. A node runs about a
// tenth of it.
const maxPods = 1000

var errTooMany = fmt.Errorf("more than %d documents or pods", maxPods)

// Origin identifies where a manifest comes from. All its fields go into the
// pods' UIDs.
type Origin struct {
	// Source is pod.SourceFile or pod.SourceHTTP.
	Source string
	// Location is the file's absolute path, or the URL.
	Location string
	// NodeName, in lower case, is appended to every pod's name.
	NodeName string
}

// Manifest is the result of parsing one text.
type Manifest struct {
	// Pods are the valid pods, in the order of the text.
	Pods []*v1.Pod
	// Problems are in the order of the text.
	Problems []Problem

	objects int // objects seen so far, valid or not
}

// Problem is an error or warning about one document or pod.
type Problem struct {
	// Place is the document, and the item of a list. It is empty if the text is
	// one document with one pod.
	Place string
	// Pod names the pod as far as the document allows; it has no UID.
	Pod pod.Ref
	// Err is the aggregate of a field.ErrorList, a *field.Error, or the error of
	// the decoder or of the bounds.
	Err error
	// Warning means that the pod was accepted nevertheless.
	Warning bool
}

// Complete reports whether every document of the text is in Pods.
func (m *Manifest) Complete() bool {
	return !slices.ContainsFunc(m.Problems, func(p Problem) bool { return !p.Warning })
}

// Parse parses a whole text. It never fails as a whole: a bad document becomes
// a Problem and does not affect the others.
func Parse(data []byte, origin Origin) Manifest {
	var m Manifest
	documents, err := document.Split(data, maxPods)
	if err != nil {
		m.Problems = append(m.Problems, Problem{Err: err})
		return m
	}
	for i, document := range documents {
		place := ""
		if len(documents) > 1 {
			place = fmt.Sprintf("document %d", i+1)
		}
		m.parseDocument(document, place, origin)
	}
	return m
}

func (m *Manifest) parseDocument(document []byte, place string, origin Origin) {
	text, warning, err := toJSON(document)
	if err != nil {
		m.Problems = append(m.Problems, Problem{Place: place, Err: err})
		return
	}
	objects, err := podsIn(text)
	if err != nil {
		m.Problems = append(m.Problems, Problem{Place: place, Pod: refOf(text, origin), Err: err})
		return
	}
	if m.objects += len(objects); m.objects > maxPods {
		m.Problems = append(m.Problems, Problem{Place: place, Err: errTooMany})
		return
	}
	if warning != nil {
		m.Problems = append(m.Problems, Problem{Place: place, Pod: refOf(text, origin), Err: warning, Warning: true})
	}
	for _, object := range objects {
		m.parsePod(object, join(place, object.place), origin)
	}
}

func (m *Manifest) parsePod(object object, place string, origin Origin) {
	problem := Problem{Place: place, Pod: refOf(object.text, origin)}
	p, warning, err := decode(object, origin)
	if warning != nil {
		warned := problem
		warned.Err, warned.Warning = warning, true
		m.Problems = append(m.Problems, warned)
	}
	if err != nil {
		problem.Err = err
		m.Problems = append(m.Problems, problem)
		return
	}
	m.Pods = append(m.Pods, p)
}

func decode(object object, origin Origin) (p *v1.Pod, warning, err error) {
	tree, err := readTree(object.text)
	if err != nil {
		return nil, nil, err
	}
	if err := checkTree(tree, nil); err != nil {
		return nil, nil, err
	}
	p, warning, err = decodePod(object)
	if err != nil {
		return nil, warning, err
	}
	uid, err := fingerprint(tree, origin)
	if err != nil {
		return nil, warning, err
	}
	if err := identify(p, uid, origin); err != nil {
		return nil, warning, err
	}
	Default(p)
	errs := append(Validate(p), validateStatic(p)...)
	if len(errs) > 0 {
		return nil, warning, errs.ToAggregate()
	}
	return p, warning, nil
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}
