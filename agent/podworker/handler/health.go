package handler

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// healthRequest is grpc.health.v1.HealthCheckRequest: the service's name.
type healthRequest string

// healthCodec encodes a healthRequest and decodes a healthStatus. The two
// messages have one field each and need no generated code.
type healthCodec struct{}

// fieldOne is the number of the only field of either message.
const fieldOne protowire.Number = 1

// Name returns the content subtype of protobuf.
func (healthCodec) Name() string { return "proto" }

var errCodec = errors.New("not a message of grpc.health.v1")

// Marshal encodes a healthRequest.
func (healthCodec) Marshal(v any) (mem.BufferSlice, error) {
	service, ok := v.(healthRequest)
	if !ok {
		return nil, fmt.Errorf("marshal %T: %w", v, errCodec)
	}
	var b []byte
	if service != "" {
		b = protowire.AppendTag(b, fieldOne, protowire.BytesType)
		b = protowire.AppendString(b, string(service))
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal decodes into a *healthStatus.
func (healthCodec) Unmarshal(data mem.BufferSlice, v any) error {
	out, ok := v.(*healthStatus)
	if !ok {
		return fmt.Errorf("unmarshal %T: %w", v, errCodec)
	}
	health, err := decodeHealth(data.Materialize())
	if err != nil {
		return err
	}
	*out = health
	return nil
}

// decodeHealth decodes a HealthCheckResponse. It skips unknown fields.
func decodeHealth(b []byte) (healthStatus, error) {
	var health healthStatus
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, fmt.Errorf("decode health response: %w", protowire.ParseError(n))
		}
		if number > protowire.MaxValidNumber {
			return 0, fmt.Errorf("decode health response: field %d: %w", number, errCodec)
		}
		b = b[n:]
		if number == fieldOne && kind == protowire.VarintType {
			value, size := protowire.ConsumeVarint(b)
			health, n = healthStatus(int32(uint32(value))), size //nolint:gosec // enums are cut to 32 bits (protobuf encoding)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return 0, fmt.Errorf("decode health response: %w", protowire.ParseError(n))
		}
		b = b[n:]
	}
	return health, nil
}
