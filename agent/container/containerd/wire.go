package containerd

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is an encoded protobuf message. The field numbers are those of
// containerd's API (api/services/{containers,content,images,leases,snapshots,tasks}/v1, api/types).
//
// containerd's generated types are not used: for the few fields that are needed they
// would add 0.6 MB to the binary, and six modules.
type message []byte

func (m *message) text(field protowire.Number, s string) {
	if s != "" {
		*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
	}
}

func (m *message) data(field protowire.Number, b []byte) {
	if len(b) > 0 {
		*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
	}
}

func (m *message) number(field protowire.Number, n int64) {
	if n != 0 {
		*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), uint64(n))
	}
}

func (m *message) dict(field protowire.Number, d map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(d)) {
		var entry message
		entry.text(1, key)
		entry.text(2, d[key])
		m.data(field, entry)
	}
}

// mask appends a google.protobuf.FieldMask.
func (m *message) mask(field protowire.Number, paths []string) {
	var mask message
	for _, p := range paths {
		mask.text(1, p)
	}
	m.data(field, mask)
}

// Actions of a write request (content.WriteAction).
const (
	actionStat   = 0
	actionWrite  = 1
	actionCommit = 2
)

// writeRequest is content.WriteContentRequest.
type writeRequest struct {
	action   int64
	ref      string
	total    int64
	expected string
	offset   int64
	data     []byte
	labels   map[string]string
}

// encode encodes the request into buf, so that a stream needs only one buffer.
func (r *writeRequest) encode(buf message) message {
	m := buf[:0]
	m.number(1, r.action)
	m.text(2, r.ref)
	m.number(3, r.total)
	m.text(4, r.expected)
	m.number(5, r.offset)
	m.data(6, r.data)
	m.dict(7, r.labels)
	return m
}

var errWire = errors.New("invalid protobuf message from containerd")

// writtenOffset decodes the offset of a content.WriteContentResponse.
func writtenOffset(m message) (int64, error) {
	value, err := field(m, 4, protowire.VarintType)
	offset, _ := protowire.ConsumeVarint(value)
	return int64(offset), err
}

// field returns the encoded value of a message's field, nil if the message does not
// have it. If there are several, the last one counts. The whole message is parsed.
func field(m []byte, wanted protowire.Number, of protowire.Type) (value []byte, err error) {
	err = each(m, wanted, of, func(v []byte) error {
		value = v
		return nil
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// each calls yield for the encoded values of a message's field, in order. It stops at
// the first error of yield and returns it.
func each(m []byte, wanted protowire.Number, of protowire.Type, yield func(value []byte) error) error {
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return fmt.Errorf("%w: %w", errWire, protowire.ParseError(n))
		}
		m = m[n:]
		if n = protowire.ConsumeFieldValue(number, kind, m); n < 0 {
			return fmt.Errorf("%w: %w", errWire, protowire.ParseError(n))
		}
		if number == wanted && kind == of {
			if err := yield(m[:n]); err != nil {
				return err
			}
		}
		m = m[n:]
	}
	return nil
}

// inner returns the content of an encoded value of BytesType; nil for a nil value.
func inner(value []byte) []byte {
	b, _ := protowire.ConsumeBytes(value)
	return b
}

// codec is a gRPC codec for encoded messages, which it does not change.
type codec struct{}

func (codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(message)
	if !ok {
		return nil, fmt.Errorf("encode %T", v)
	}
	return m, nil
}

func (codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("decode %T", v)
	}
	*m = append((*m)[:0], data...)
	return nil
}

func (codec) Name() string { return "proto" }
