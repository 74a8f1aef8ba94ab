package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"

	"k8s.io/apimachinery/pkg/types"
)

// Static is the value of cpuManagerPolicy that this package stands for.
const Static = "static"

// Saved is a policy's state as it outlives the agent. The zero Saved is that
// of an agent that had none.
type Saved struct {
	// Policy is the cpuManagerPolicy by which it came to be.
	Policy string `json:"policy"`
	// CPUs and Reserved are what the machine had then.
	CPUs     Set `json:"cpus"`
	Reserved Set `json:"reserved"`
	// Pods are the CPUs that containers have alone.
	Pods map[types.UID]map[string]Set `json:"pods"`
}

// Saved is a copy of the policy's state.
func (p *Policy) Saved() Saved {
	pods := make(map[types.UID]map[string]Set, len(p.held))
	for uid, containers := range p.held {
		pods[uid] = maps.Clone(containers)
	}
	return Saved{Policy: Static, CPUs: p.cpus, Reserved: p.reserved, Pods: pods}
}

// version is that of the document.
const version = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// document is the state and what vouches for it: a JSON object with version,
// crc32c and state. The sum is of the bytes of the state as they stand there,
// so a later version may have other fields in it.
type document struct {
	Version int             `json:"version"`
	Sum     string          `json:"crc32c"`
	State   json.RawMessage `json:"state"`
}

func sumOf(state []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(state, castagnoli))
}

// Encode writes the document, one line. Equal states give equal bytes.
func (s Saved) Encode() ([]byte, error) {
	state, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the CPU state: %w", err)
	}
	data, err := json.Marshal(document{Version: version, Sum: sumOf(state), State: state})
	if err != nil {
		return nil, fmt.Errorf("encode the CPU state: %w", err)
	}
	return append(data, '\n'), nil
}

// Decode reads a document of Encode. It fails for one that is torn or was
// changed, and for a foreign one: of a later version, or a kubelet's
// cpu_manager_state. Whether what it says fits is Restore's to find out. After
// an error Restore goes on from the zero Saved.
func Decode(data []byte) (Saved, error) {
	if len(data) == 0 {
		return Saved{}, errors.New("the CPU state is empty")
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return Saved{}, fmt.Errorf("the CPU state is torn or no document of this agent: %w", err)
	}
	switch {
	case d.Version == 0:
		return Saved{}, errors.New("the CPU state has no version: it is no document of this agent")
	case d.Version != version:
		return Saved{}, fmt.Errorf("the CPU state is of version %d: this agent knows version %d", d.Version, version)
	case d.Sum != sumOf(d.State):
		return Saved{}, fmt.Errorf("the CPU state is damaged: its sum is %s, not %q", sumOf(d.State), d.Sum)
	}
	var s Saved
	if err := json.Unmarshal(d.State, &s); err != nil {
		return Saved{}, fmt.Errorf("decode the CPU state: %w", err)
	}
	if s.Policy == "" {
		return Saved{}, errors.New("decode the CPU state: it names no policy")
	}
	return s, nil
}
