package resize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// version is that of the document.
const version = 1

// MaxDocument is the largest document that is read: a thousand bytes for each
// of ten containers in each of a hundred pods.
const MaxDocument = 1 << 20

var (
	// ErrDocument says that a document is torn or none of this package's. It
	// is as good as lost: each pod gets Of its spec.
	ErrDocument = errors.New("this is no record of allocations")
	// ErrVersion says that a document is of another version of the agent.
	ErrVersion = errors.New("the record of allocations has a version that is not known")
)

type document struct {
	Version int `json:"version"`
	// Checksum is CRC-32C of Pods as they stand in the document.
	Checksum uint32          `json:"checksum"`
	Pods     json.RawMessage `json:"pods"`
}

type record struct {
	Containers map[string]sizes `json:"containers,omitempty"`
	Pod        *sizes           `json:"pod,omitempty"`
}

type sizes struct {
	Requests amounts `json:"requests,omitempty"`
	Limits   amounts `json:"limits,omitempty"`
}

func (s sizes) requirements() v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList(s.Requests), Limits: v1.ResourceList(s.Limits)}
}

func (a Allocation) reasonable() bool {
	for _, r := range a.Containers {
		if !allReasonable(r.Requests) || !allReasonable(r.Limits) {
			return false
		}
	}
	return a.Pod == nil || allReasonable(a.Pod.Requests) && allReasonable(a.Pod.Limits)
}

// Encode makes a document of the allocations of all pods by their UIDs, the
// same of the same allocations. What was decided has to be in it before it
// is acted on. A pod with an amount beyond reason is left out, lest it cost
// the others their record.
func Encode(all map[types.UID]Allocation) ([]byte, error) {
	records := make(map[types.UID]record, len(all))
	for uid, a := range all {
		if !a.reasonable() {
			continue
		}
		r := record{Containers: make(map[string]sizes, len(a.Containers))}
		for name, given := range a.Containers {
			r.Containers[name] = sizes{amounts(given.Requests), amounts(given.Limits)}
		}
		if a.Pod != nil {
			r.Pod = &sizes{amounts(a.Pod.Requests), amounts(a.Pod.Limits)}
		}
		records[uid] = r
	}
	pods, err := json.Marshal(records)
	if err != nil {
		return nil, fmt.Errorf("encode allocations: %w", err)
	}
	text, err := json.Marshal(document{version, checksum(pods), pods})
	if err != nil {
		return nil, fmt.Errorf("encode allocations: %w", err)
	}
	if len(text) > MaxDocument {
		return nil, fmt.Errorf("encode allocations: they have %d bytes, more than the %d that are read", len(text), MaxDocument)
	}
	return text, nil
}

// Decode reads a document. Its errors are ErrDocument or ErrVersion.
func Decode(text []byte) (map[types.UID]Allocation, error) {
	if len(text) > MaxDocument {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrDocument, len(text))
	}
	// Of another version only the number is known to be there.
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	switch {
	case head.Version <= 0:
		return nil, fmt.Errorf("%w: it has no version", ErrDocument)
	case head.Version != version:
		return nil, fmt.Errorf("%w: %d", ErrVersion, head.Version)
	}
	var d document
	if err := strict(text, &d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if d.Checksum != checksum(d.Pods) {
		return nil, fmt.Errorf("%w: its checksum is not that of its pods", ErrDocument)
	}
	var records map[types.UID]record
	if err := strict(d.Pods, &records); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	all := make(map[types.UID]Allocation, len(records))
	for uid, r := range records {
		a := Allocation{Containers: make(map[string]v1.ResourceRequirements, len(r.Containers))}
		for name, given := range r.Containers {
			a.Containers[name] = given.requirements()
		}
		if r.Pod != nil {
			a.Pod = new(r.Pod.requirements())
		}
		all[uid] = a
	}
	return all, nil
}

func checksum(pods []byte) uint32 {
	return crc32.Checksum(pods, crc32.MakeTable(crc32.Castagnoli))
}

// strict refuses fields that this version does not write: what they would say
// must not be lost silently.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
