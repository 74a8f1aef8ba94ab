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

// version is the version of the document's format.
const version = 1

// MaxDocument is the maximum size of a document in bytes: a thousand bytes for each
// of ten containers in each of a hundred pods.
const MaxDocument = 1 << 20

var (
	// ErrDocument means that a document is corrupt or foreign. The checkpoint is lost
	// then: the caller uses FromStatus for each pod.
	ErrDocument = errors.New("not a valid allocation checkpoint")
	// ErrVersion means that a document has the format of another version of the
	// agent.
	ErrVersion = errors.New("unknown version of allocation checkpoint")
)

type document struct {
	Version int `json:"version"`
	// Checksum is the CRC-32C of Pods as encoded in the document.
	Checksum uint32          `json:"checksum"`
	Pods     json.RawMessage `json:"pods"`
}

type record struct {
	Containers map[string]requirements `json:"containers,omitempty"`
	Pod        *requirements           `json:"pod,omitempty"`
}

type requirements struct {
	Requests quantities `json:"requests,omitempty"`
	Limits   quantities `json:"limits,omitempty"`
}

func (s requirements) requirements() v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList(s.Requests), Limits: v1.ResourceList(s.Limits)}
}

func (a Allocation) inRange() bool {
	for _, r := range a.Containers {
		if !allInRange(r.Requests) || !allInRange(r.Limits) {
			return false
		}
	}
	return a.Pod == nil || allInRange(a.Pod.Requests) && allInRange(a.Pod.Limits)
}

// Encode encodes the allocations of all pods by UID. Equal allocations give equal
// documents. A caller must store a decision before it acts on it. Encode omits a pod
// with an out-of-range amount, so that the other pods keep their records.
func Encode(all map[types.UID]Allocation) ([]byte, error) {
	records := make(map[types.UID]record, len(all))
	for uid, a := range all {
		if !a.inRange() {
			continue
		}
		r := record{Containers: make(map[string]requirements, len(a.Containers))}
		for name, given := range a.Containers {
			r.Containers[name] = requirements{quantities(given.Requests), quantities(given.Limits)}
		}
		if a.Pod != nil {
			r.Pod = &requirements{quantities(a.Pod.Requests), quantities(a.Pod.Limits)}
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
		return nil, fmt.Errorf("encode allocations: %d bytes exceed the maximum of %d", len(text), MaxDocument)
	}
	return text, nil
}

// Decode decodes a document. Its errors wrap ErrDocument or ErrVersion.
func Decode(text []byte) (map[types.UID]Allocation, error) {
	if len(text) > MaxDocument {
		return nil, fmt.Errorf("%w: %d bytes are too many", ErrDocument, len(text))
	}
	// Only the version number has the same place in all versions.
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	switch {
	case head.Version <= 0:
		return nil, fmt.Errorf("%w: missing version", ErrDocument)
	case head.Version != version:
		return nil, fmt.Errorf("%w: %d", ErrVersion, head.Version)
	}
	var d document
	if err := strict(text, &d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if d.Checksum != checksum(d.Pods) {
		return nil, fmt.Errorf("%w: checksum mismatch", ErrDocument)
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

// strict rejects fields that this version does not write, so that no data is lost
// silently.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
