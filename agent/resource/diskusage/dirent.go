package diskusage

import (
	"bytes"
	"encoding/binary"
)

// An entry of getdents64(2): inode, position of the next entry, length of this
// one, type, and the name with a zero byte behind it.
const (
	direntAt     = 8
	direntLength = 16
	direntName   = 19
)

// entry is one name of a directory.
type entry struct {
	name []byte // with its zero byte
	at   int64  // where the directory goes on behind it
}

// nextEntry takes the first entry off what getdents64 wrote. What cannot be
// one ends it.
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

// isDots says whether it is the directory's own entry or its parent's.
func (e entry) isDots() bool {
	return len(e.name) == 2 && e.name[0] == '.' || len(e.name) == 3 && e.name[0] == '.' && e.name[1] == '.'
}
