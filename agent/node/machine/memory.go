package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// meminfo is what is wanted of /proc/meminfo (proc_meminfo(5)), in bytes. What
// it does not tell is zero.
type meminfo struct {
	total, available, swapTotal, swapFree uint64
	// tellsAvailable says that it does tell available, of which there may be
	// none.
	tellsAvailable bool
}

// Memory is the machine's memory in bytes, or 0 if /proc does not tell.
func Memory(r Roots) int64 {
	m, _ := readMeminfo(r) // there is none, then
	return int64(m.total)
}

// readMeminfo fails where the file cannot be read, or has no MemTotal.
func readMeminfo(r Roots) (m meminfo, err error) {
	file := filepath.Join(r.proc(), "meminfo")
	data, err := os.ReadFile(file)
	if err != nil {
		return m, fmt.Errorf("read the machine's memory: %w", err)
	}
	for line := range bytes.Lines(data) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		var into *uint64
		switch string(name) {
		case "MemTotal":
			into = &m.total
		case "MemAvailable":
			into = &m.available
		case "SwapTotal":
			into = &m.swapTotal
		case "SwapFree":
			into = &m.swapFree
		default:
			continue
		}
		// So many kilobytes are still bytes of 64 bits, with a sign.
		kb, err := strconv.ParseUint(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 50)
		if err == nil {
			*into = kb << 10
			m.tellsAvailable = m.tellsAvailable || into == &m.available
		}
	}
	if m.total == 0 {
		return m, fmt.Errorf("read the machine's memory: %s has no MemTotal", file)
	}
	m.within(r)
	return m, nil
}

// within bounds the figures by the limit of the group that is the root of all
// groups here: none has one on a machine, but in a container with a namespace
// of cgroups meminfo tells of the host's memory.
func (m *meminfo) within(r Roots) {
	group := filepath.Join(r.sys(), "fs/cgroup")
	limit := uint64(positive(strings.TrimSpace(readSmall(filepath.Join(group, "memory.max")))))
	if limit == 0 || limit >= m.total {
		return
	}
	used := uint64(positive(strings.TrimSpace(readSmall(filepath.Join(group, "memory.current")))))
	m.total, m.available = limit, min(m.available, limit-min(used, limit))
}
