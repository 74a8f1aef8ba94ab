package diskusage

import (
	"bytes"
	"encoding/binary"
)

// Offsets in an entry of getdents64(2): the position of the next entry, the length of
// this one, and its name, which ends with a zero byte.
const (
	direntAt     = 8
	direntLength = 16
	direntName   = 19
)

// entry is an entry of a directory.
type entry struct {
	name []byte // with its zero byte
	at   int64  // position of the next entry
}

// nextEntry splits the first entry off the result of getdents64. ok is false at the
// end or at an invalid entry.
func nextEntry(buf []byte) (e entry, rest []byte, ok bool) {
	if len(buf) <= direntName {
		return entry{}, nil, false
	}
	length := int(binary.NativeEndian.Uint16(buf[direntLength:]))
	if length <= direntName || length > len(buf) {
		return entry{}, nil, false
	}
	name := buf[direntName:length]
	end := bytes.IndexByte(name, 0)
	if end < 1 {
		return entry{}, nil, false
	}
	return entry{name[:end+1], int64(binary.NativeEndian.Uint64(buf[direntAt:]))}, buf[length:], true
}

// isDots reports whether the entry is "." or "..".
func (e entry) isDots() bool {
	return len(e.name) == 2 && e.name[0] == '.' || len(e.name) == 3 && e.name[0] == '.' && e.name[1] == '.'
}
