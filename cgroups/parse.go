package cgroups

import (
	"bytes"
	"math"
	"strconv"
)

// The parsers take the content of a file and report whether all known lines and keys of
// it could be parsed. They skip the others, since kernels add some. They do not allocate.

var newline = []byte{'\n'}

// field is where to store the value of a key.
type field struct {
	key  string
	into *Number
}

// parseCPU parses cpu.stat.
func parseCPU(data []byte, c *CPUStats) bool {
	return parseKeyed(data, field{"usage_usec", &c.Usage}, field{"user_usec", &c.User}, field{"system_usec", &c.System},
		field{"nr_periods", &c.Periods}, field{"nr_throttled", &c.ThrottledPeriods}, field{"throttled_usec", &c.Throttled})
}

// parseMemory parses memory.stat.
func parseMemory(data []byte, m *MemoryStats) bool {
	return parseKeyed(data, field{"anon", &m.Anon}, field{"file", &m.File}, field{"kernel", &m.Kernel},
		field{"slab_reclaimable", &m.SlabReclaimable}, field{"active_file", &m.ActiveFile}, field{"inactive_file", &m.InactiveFile},
		field{"pgfault", &m.Faults}, field{"pgmajfault", &m.MajorFaults})
}

// parseEvents parses memory.events.
func parseEvents(data []byte, e *MemoryEvents) bool {
	return parseKeyed(data, field{"oom", &e.OOM}, field{"oom_kill", &e.OOMKill}, field{"oom_group_kill", &e.OOMGroupKill})
}

// parseKeyed parses lines of "key value".
func parseKeyed(data []byte, fields ...field) bool {
	for line := range bytes.SplitSeq(data, newline) {
		key, value := cut(line, ' ')
		for _, f := range fields {
			if f.key != string(key) {
				continue
			}
			n, ok := number(value)
			if !ok {
				return false
			}
			*f.into = Number{n, true}
		}
	}
	return true
}

// parseSingle parses a file of one number.
func parseSingle(data []byte, into *Number) bool {
	n, ok := number(data)
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
	for word := range bytes.FieldsSeq(data) {
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
	*into = sum
	return true
}

// parsePressure parses a pressure file.
func parsePressure(data []byte, into *Pressure) bool {
	for line := range bytes.SplitSeq(data, newline) {
		kind, values := cut(line, ' ')
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
		for word := range bytes.FieldsSeq(values) {
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

// decimal parses an unsigned number of at most 15 digits, with digits after a point.
func decimal(digits []byte) (float64, bool) {
	n, err := strconv.ParseFloat(string(digits), 64)
	return n, err == nil && len(digits) <= 16 && len(bytes.Trim(digits, "0123456789.")) == 0
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
	for line := range bytes.SplitSeq(stat, newline) {
		if name, value := cut(line, ' '); string(name) == key {
			return number(value)
		}
	}
	return 0, false
}

// number parses an unsigned decimal number, with or without a newline after it.
func number(digits []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(bytes.TrimSuffix(digits, newline)), 10, 64)
	if err != nil {
		return 0, false
	}
	return n, true
}
