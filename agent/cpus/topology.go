package cpus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tinylet/tinylet/agent/cpuset"
)

// DefaultRoot is where the kernel shows the machine's CPUs
// (Documentation/ABI/testing/sysfs-devices-system-cpu of Linux).
const DefaultRoot = "/sys/devices/system/cpu"

// ReadTopology reads which CPUs are online, and which of them share a core,
// from root. A kernel that tells nothing of cores has one CPU in each.
func ReadTopology(root string) (cpuset.Topology, error) {
	online, err := readList(filepath.Join(root, "online"))
	if err != nil {
		return cpuset.Topology{}, fmt.Errorf("read the CPUs that are online: %w", err)
	}
	t := cpuset.Topology{CPUs: online, Core: make(map[int]int)}
	for cpu := range online.All() {
		t.Core[cpu] = cpu
		siblings, err := readList(filepath.Join(root, "cpu"+strconv.Itoa(cpu), "topology", "thread_siblings_list"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return cpuset.Topology{}, fmt.Errorf("read the core of CPU %d: %w", cpu, err)
		}
		for first := range siblings.Intersect(online).All() {
			t.Core[cpu] = first
			break
		}
	}
	return t, nil
}

func readList(file string) (cpuset.Set, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return cpuset.Set{}, err
	}
	s, err := cpuset.Parse(string(data))
	if err != nil {
		return cpuset.Set{}, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}
