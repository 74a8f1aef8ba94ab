package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Memory returns the machine's memory in bytes, or 0 if /proc does not report it.
func Memory(r Roots) int64 {
	m, _ := readMeminfo(r) // zero on an error
	return int64(m.Memory)
}

// readMeminfo returns the fields of Load that are in /proc/meminfo (proc_meminfo(5)). It
// fails if the file cannot be read or has no MemTotal.
func readMeminfo(r Roots) (m Load, err error) {
	file := filepath.Join(r.proc(), "meminfo")
	data, err := os.ReadFile(file)
	if err != nil {
		return m, fmt.Errorf("read memory size: %w", err)
	}
	for line := range bytes.Lines(data) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		var into *uint64
		switch string(name) {
		case "MemTotal":
			into = &m.Memory
		case "MemAvailable":
			into = &m.Available
		case "SwapTotal":
			into = &m.SwapTotal
		case "SwapFree":
			into = &m.SwapFree
		default:
			continue
		}
		// 50 bits of kilobytes fit into a signed 64-bit number of bytes.
		kb, err := strconv.ParseUint(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 50)
		if err == nil {
			*into = kb << 10
			m.AvailableKnown = m.AvailableKnown || into == &m.Available
		}
	}
	if m.Memory == 0 {
		return m, fmt.Errorf("read memory size: %s has no MemTotal", file)
	}
	m.limitToCgroup(r)
	return m, nil
}

// limitToCgroup bounds the sizes by the memory limit of the root cgroup. A machine's root
// cgroup has none. In a container with a cgroup namespace it has the container's
// limit, while meminfo reports the host's memory.
func (m *Load) limitToCgroup(r Roots) {
	group := filepath.Join(r.sys(), "fs/cgroup")
	limit := uint64(positive(readSmall(filepath.Join(group, "memory.max"))))
	if limit == 0 || limit >= m.Memory {
		return
	}
	used := uint64(positive(readSmall(filepath.Join(group, "memory.current"))))
	m.Memory, m.Available = limit, min(m.Available, limit-min(used, limit))
}
