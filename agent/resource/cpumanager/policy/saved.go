package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"k8s.io/apimachinery/pkg/types"
)

// Static is the value of cpuManagerPolicy that this package implements.
const Static = "static"

// Saved is the state of a Policy that survives a restart of the agent. The zero Saved
// is that of an agent without state.
type Saved struct {
	// Policy is the cpuManagerPolicy that created the state.
	Policy string `json:"policy"`
	// CPUs and Reserved are the online and the reserved CPUs at that time.
	CPUs     cpuList `json:"cpus"`
	Reserved cpuList `json:"reserved"`
	// Pods maps pods and container names to exclusive CPUs.
	Pods map[types.UID]map[string]cpuList `json:"pods"`
}

// cpuList is a Set that is encoded in the kernel's list format.
type cpuList struct{ Set }

func (l cpuList) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

func (l *cpuList) UnmarshalText(text []byte) (err error) {
	l.Set, err = Parse(string(text))
	return err
}

// Saved returns a copy of the policy's state.
func (p *Policy) Saved() Saved {
	pods := make(map[types.UID]map[string]cpuList, len(p.assigned))
	for uid, containers := range p.assigned {
		pods[uid] = make(map[string]cpuList, len(containers))
		for name, cpus := range containers {
			pods[uid][name] = cpuList{cpus}
		}
	}
	return Saved{Policy: Static, CPUs: cpuList{p.cpus}, Reserved: cpuList{p.reserved}, Pods: pods}
}

// version is the version of the document's format.
const version = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// document is the encoded state: a JSON object with version, crc32c and state. The
// checksum covers the bytes of the encoded state, so that a later version may add
// fields to it.
type document struct {
	Version int             `json:"version"`
	Sum     string          `json:"crc32c"`
	State   json.RawMessage `json:"state"`
}

func sumOf(state []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(state, castagnoli))
}

// Encode encodes the state as a document of one line. Equal states give equal bytes.
func (s Saved) Encode() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode CPU state: %w", err)
	}
	data, err := json.Marshal(document{Version: version, Sum: sumOf(text), State: text})
	if err != nil {
		return nil, fmt.Errorf("encode CPU state: %w", err)
	}
	return append(data, '\n'), nil
}

// Decode decodes a document of Encode. It returns an error for a truncated, modified
// or foreign document: of a later version, or a kubelet's cpu_manager_state. It does
// not check whether the state fits the machine; Restore does. After an error call
// Restore with the zero Saved.
func Decode(data []byte) (Saved, error) {
	if len(data) == 0 {
		return Saved{}, errors.New("decode CPU state: empty document")
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return Saved{}, fmt.Errorf("decode CPU state: corrupt or foreign document: %w", err)
	}
	switch {
	case d.Version == 0:
		return Saved{}, errors.New("decode CPU state: missing version")
	case d.Version != version:
		return Saved{}, fmt.Errorf("decode CPU state: unsupported version %d, want %d", d.Version, version)
	case d.Sum != sumOf(d.State):
		return Saved{}, fmt.Errorf("decode CPU state: checksum mismatch: computed %s, stored %q", sumOf(d.State), d.Sum)
	}
	var s Saved
	if err := json.Unmarshal(d.State, &s); err != nil {
		return Saved{}, fmt.Errorf("decode CPU state: %w", err)
	}
	if s.Policy == "" {
		return Saved{}, errors.New("decode CPU state: missing policy")
	}
	return s, nil
}
