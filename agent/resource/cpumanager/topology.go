package cpumanager

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tinylet/tinylet/agent/resource/cpumanager/policy"
)

// DefaultRoot is the sysfs directory of the machine's CPUs
// (Documentation/ABI/testing/sysfs-devices-system-cpu of Linux).
const DefaultRoot = "/sys/devices/system/cpu"

// ReadTopology reads the online CPUs and which of them share a core from root. A CPU
// without topology in sysfs counts as a core of its own.
func ReadTopology(root string) (policy.Topology, error) {
	online, err := readList(filepath.Join(root, "online"))
	if err != nil {
		return policy.Topology{}, fmt.Errorf("read online CPUs: %w", err)
	}
	t := policy.Topology{CPUs: online, Core: make(map[int]int)}
	for _, cpu := range online.List() {
		t.Core[cpu] = cpu
		siblings, err := readList(filepath.Join(root, "cpu"+strconv.Itoa(cpu), "topology", "thread_siblings_list"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return policy.Topology{}, fmt.Errorf("read core of CPU %d: %w", cpu, err)
		}
		for _, first := range siblings.Intersection(online).List() {
			t.Core[cpu] = first
			break
		}
	}
	return t, nil
}

func readList(file string) (policy.Set, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return policy.Set{}, err
	}
	s, err := policy.Parse(string(data))
	if err != nil {
		return policy.Set{}, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}
