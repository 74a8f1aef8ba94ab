package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	headerSize = 60
	// headerSealed is the number of bytes of a header that sealed records
	// authenticate: all but the two sums.
	headerSealed = 52
	version      = 1
	// maxLength is the longest payload of a batch. The changes of one Write have at most
	// MaxBatch bytes, and a rewrite may seal a record that was plain.
	maxLength = MaxBatch + 1<<10
	// endOfSequence is the exclusive bound of a valid sequence number. It leaves
	// room to count on from any valid number.
	endOfSequence = 1 << 63
)

var (
	magic      = []byte("\xd3tnyjrn\x1a")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// identity holds the header fields that all batches of one file have in common.
type identity struct {
	version uint32
	file    uint64
	key     uint64 // 0 in a plain file
}

// header is the header of one batch. doc.go describes its format.
type header struct {
	identity
	records uint32
	seq     uint64
	time    int64
	length  uint32
	sum     uint32
}

// put writes the header to the first headerSize bytes of b.
func (h *header) put(b []byte) {
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], h.version)
	binary.LittleEndian.PutUint32(b[12:], h.records)
	binary.LittleEndian.PutUint64(b[16:], h.seq)
	binary.LittleEndian.PutUint64(b[24:], uint64(h.time))
	binary.LittleEndian.PutUint64(b[32:], h.file)
	binary.LittleEndian.PutUint64(b[40:], h.key)
	binary.LittleEndian.PutUint32(b[48:], h.length)
	binary.LittleEndian.PutUint32(b[52:], h.sum)
	binary.LittleEndian.PutUint32(b[56:], crc32.Checksum(b[:56], castagnoli))
}

// parseHeader decodes a header from the first headerSize bytes of b. ok is false
// if they are not a header. The header may have another version.
func parseHeader(b []byte) (h header, ok bool) {
	if string(b[:len(magic)]) != string(magic) ||
		binary.LittleEndian.Uint32(b[56:]) != crc32.Checksum(b[:56], castagnoli) {
		return header{}, false
	}
	return header{
		identity: identity{
			version: binary.LittleEndian.Uint32(b[8:]),
			file:    binary.LittleEndian.Uint64(b[32:]),
			key:     binary.LittleEndian.Uint64(b[40:]),
		},
		records: binary.LittleEndian.Uint32(b[12:]),
		seq:     binary.LittleEndian.Uint64(b[16:]),
		time:    int64(binary.LittleEndian.Uint64(b[24:])),
		length:  binary.LittleEndian.Uint32(b[48:]),
		sum:     binary.LittleEndian.Uint32(b[52:]),
	}, true
}

// Sealed reports whether the header at the beginning of the journal in a directory is that
// of a sealed file. It changes nothing and needs no key. The error wraps fs.ErrNotExist if
// there is no journal, and ErrVersion if another version of the agent wrote it.
func Sealed(dir string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var raw [headerSize]byte
	if _, err := io.ReadFull(f, raw[:]); err != nil {
		return false, err
	}
	h, ok := parseHeader(raw[:])
	if !ok {
		return false, errors.New("the journal does not begin with a header")
	}
	if h.version != version {
		return false, fmt.Errorf("%w: version %d", ErrVersion, h.version)
	}
	return h.key != 0, nil
}
