package cgroups

import (
	"bytes"
	"math"
)

// The parsers take the content of a file and report whether all known lines and keys of
// it could be parsed. They skip the others, since kernels add some. They do not allocate.

// keyed are stats in lines of "key value".
type keyed interface {
	// slot returns where to store the value of the key, nil to skip it.
	slot(key []byte) *Number
}

func (c *CPUStats) slot(key []byte) *Number {
	switch string(key) {
	case "usage_usec":
		return &c.Usage
	case "user_usec":
		return &c.User
	case "system_usec":
		return &c.System
	case "nr_periods":
		return &c.Periods
	case "nr_throttled":
		return &c.ThrottledPeriods
	case "throttled_usec":
		return &c.Throttled
	default:
		return nil
	}
}

func (m *MemoryStats) slot(key []byte) *Number {
	switch string(key) {
	case "anon":
		return &m.Anon
	case "file":
		return &m.File
	case "kernel":
		return &m.Kernel
	case "slab_reclaimable":
		return &m.SlabReclaimable
	case "active_file":
		return &m.ActiveFile
	case "inactive_file":
		return &m.InactiveFile
	case "pgfault":
		return &m.Faults
	case "pgmajfault":
		return &m.MajorFaults
	default:
		return nil
	}
}

func (e *MemoryEvents) slot(key []byte) *Number {
	switch string(key) {
	case "oom":
		return &e.OOM
	case "oom_kill":
		return &e.OOMKill
	case "oom_group_kill":
		return &e.OOMGroupKill
	default:
		return nil
	}
}

// parseKeyed parses lines of "key value".
func parseKeyed(data []byte, into keyed) bool {
	for len(data) > 0 {
		var line []byte
		line, data = cut(data, '\n')
		key, value := cut(line, ' ')
		slot := into.slot(key)
		if slot == nil {
			continue
		}
		n, ok := number(value)
		if !ok {
			return false
		}
		*slot = Number{n, true}
	}
	return true
}

// parseSingle parses a file of one number.
func parseSingle(data []byte, into *Number) bool {
	n, ok := number(bytes.TrimSuffix(data, []byte{'\n'}))
	if ok {
		*into = Number{n, true}
	}
	return ok
}

// parseLimit parses a file of one number or "max".
func parseLimit(data []byte, into *Number) bool {
	if string(data) == "max\n" || string(data) == "max" {
		*into = Number{NoLimit, true}
		return true
	}
	return parseSingle(data, into)
}

// parseIO adds up io.stat. It splits words, not lines: kernels before 5.14 leave out the
// end of the line after a device without I/O.
func parseIO(data []byte, into *IOStats) bool {
	sum := IOStats{Number{0, true}, Number{0, true}, Number{0, true}, Number{0, true}}
	for len(data) > 0 {
		var line []byte
		line, data = cut(data, '\n')
		for len(line) > 0 {
			var word []byte
			word, line = cut(line, ' ')
			key, value := cut(word, '=')
			var slot *Number
			switch string(key) {
			case "rbytes":
				slot = &sum.ReadBytes
			case "wbytes":
				slot = &sum.WrittenBytes
			case "rios":
				slot = &sum.Reads
			case "wios":
				slot = &sum.Writes
			default:
				continue
			}
			n, ok := number(value)
			if !ok || n > math.MaxUint64-slot.Value {
				return false
			}
			slot.Value += n
		}
	}
	*into = sum
	return true
}

// parsePressure parses a pressure file.
func parsePressure(data []byte, into *Pressure) bool {
	for len(data) > 0 {
		var line []byte
		line, data = cut(data, '\n')
		kind, line := cut(line, ' ')
		var stall *Stall
		switch string(kind) {
		case "some":
			stall = &into.Some
		case "full":
			stall = &into.Full
		default:
			continue
		}
		read := Stall{Known: true}
		for len(line) > 0 {
			var word []byte
			word, line = cut(line, ' ')
			key, value := cut(word, '=')
			ok := true
			switch string(key) {
			case "avg10":
				read.Avg10, ok = decimal(value)
			case "avg60":
				read.Avg60, ok = decimal(value)
			case "avg300":
				read.Avg300, ok = decimal(value)
			case "total":
				read.Total, ok = number(value)
			}
			if !ok {
				return false
			}
		}
		*stall = read
	}
	return true
}

// decimal parses an unsigned number with digits after a point. Whole numbers up to 2^53
// and powers of ten are exact, so one division rounds as strconv.ParseFloat does.
func decimal(digits []byte) (float64, bool) {
	whole, fraction := cut(digits, '.')
	if len(whole) == 0 || len(whole)+len(fraction) > 15 || len(whole) < len(digits) && len(fraction) == 0 {
		return 0, false
	}
	n, ok := number(whole)
	if !ok {
		return 0, false
	}
	scale := uint64(1)
	for _, c := range fraction {
		if c < '0' || c > '9' {
			return 0, false
		}
		n, scale = n*10+uint64(c-'0'), scale*10
	}
	return float64(n) / float64(scale), true
}

// cut is bytes.Cut for one byte, without its third result.
func cut(data []byte, at byte) (before, after []byte) {
	if i := bytes.IndexByte(data, at); i >= 0 {
		return data[:i], data[i+1:]
	}
	return data, nil
}

// lookup returns the value of a key in lines of "key value".
func lookup(stat []byte, key string) (uint64, bool) {
	for len(stat) > 0 {
		var line []byte
		line, stat = cut(stat, '\n')
		if len(line) > len(key) && string(line[:len(key)]) == key && line[len(key)] == ' ' {
			return number(line[len(key)+1:])
		}
	}
	return 0, false
}

// number parses an unsigned decimal number.
func number(digits []byte) (uint64, bool) {
	if len(digits) == 0 {
		return 0, false
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' || n > (1<<64-1)/10 {
			return 0, false
		}
		next := n*10 + uint64(c-'0')
		if next < n {
			return 0, false
		}
		n = next
	}
	return n, true
}
