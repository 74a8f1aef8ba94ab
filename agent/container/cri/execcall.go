package cri

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// execCalls makes ExecSync calls on an HTTP/2 connection of its own. A gRPC client keeps a
// whole message in memory, up to 16 MiB, before the caller can check its size, or rejects
// the whole message including the exit code. execCalls reads the message as it arrives,
// keeps the beginning of each output and the exit code, and discards the rest. Its memory
// is constant.
//
// The first call opens the connection. It is closed after idleExec without a call, so a
// node without exec probes has none.
type execCalls struct {
	transport *http.Transport

	mu     sync.Mutex
	closed bool
	calls  map[*context.CancelFunc]struct{} // in progress
}

const (
	idleExec = 90 * time.Second
	// execWindow bounds what the runtime may send before the driver has read
	// it, for each stream and for all of them.
	execWindow = 64 << 10
	// readBuffer is how much of a message is read at a time, in bytes.
	readBuffer = 1 << 10
)

func newExecCalls(socket string) *execCalls {
	e := &execCalls{calls: make(map[*context.CancelFunc]struct{})}
	e.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		},
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: execWindow, MaxReceiveBufferPerConnection: execWindow},
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         readBuffer,
		WriteBufferSize:        readBuffer,
		IdleConnTimeout:        idleExec,
	}
	e.transport.Protocols.SetUnencryptedHTTP2(true)
	return e
}

// stop cancels the calls in progress and all later ones.
func (e *execCalls) stop() {
	e.mu.Lock()
	e.closed = true
	for cancel := range e.calls {
		(*cancel)()
	}
	e.mu.Unlock()
	e.transport.CloseIdleConnections()
}

// begin returns the context of a call, which ends with ctx or with stop. The
// caller must call end after the call.
func (e *execCalls) begin(ctx context.Context) (limited context.Context, end func()) {
	limited, cancel := context.WithCancel(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls[&cancel] = struct{}{}
	if e.closed {
		cancel()
	}
	return limited, func() {
		cancel()
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.calls, &cancel)
	}
}

// call makes one call. Its errors have a gRPC status.
func (e *execCalls) call(ctx context.Context, in *runtimeapi.ExecSyncRequest, out *runtimeapi.ExecSyncResponse) error {
	limited, end := e.begin(ctx)
	defer end()
	err := e.exchange(limited, in, out)
	switch {
	case err == nil, isStatus(err):
		return err
	case limited.Err() != nil:
		return status.FromContextError(limited.Err()).Err()
	}
	if deadline, ok := limited.Deadline(); ok && time.Until(deadline) < deadlineSlack {
		// The server has the same deadline and may have reset the stream first.
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

func isStatus(err error) bool {
	_, ok := status.FromError(err)
	return ok
}

// exchange sends a request and reads its response (the protocol of gRPC over
// HTTP/2). An error without a gRPC status is one of the connection.
func (e *execCalls) exchange(ctx context.Context, in *runtimeapi.ExecSyncRequest, out *runtimeapi.ExecSyncResponse) error {
	// The prefix is one byte for "not compressed" and four for the length.
	message, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 5, 256), in)
	if err != nil {
		return status.Errorf(codes.Internal, "marshal request: %v", err)
	}
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-5)) //nolint:gosec // a pod's command is no longer than a pod
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+runtimeapi.RuntimeService_ExecSync_FullMethodName, bytes.NewReader(message))
	if err != nil {
		return status.Errorf(codes.Internal, "make request: %v", err)
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {"tinylet"}}
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set("Grpc-Timeout", grpcTimeout(time.Until(deadline)))
	}
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || err != nil || kind != "application/grpc" {
		return fmt.Errorf("peer is not a gRPC server: %s", resp.Status)
	}
	if code := resp.Header.Get("Grpc-Status"); code != "" {
		if err := statusOf(resp.Header); err != nil {
			return err
		}
		return status.Error(codes.Internal, "response has no message")
	}
	body := bufio.NewReaderSize(resp.Body, readBuffer)
	readErr := readMessage(body, out)
	if readErr == nil || errors.Is(readErr, io.EOF) {
		if _, err := io.Copy(io.Discard, body); err != nil { // the trailers follow it
			return err
		}
		if err := statusOf(resp.Trailer); err != nil {
			return err
		}
	}
	return readErr
}

// grpcTimeout formats the value of the header Grpc-Timeout, which has at most eight digits:
// in milliseconds, or in seconds if it is longer than about 28 hours.
func grpcTimeout(d time.Duration) string {
	const most = 99_999_999
	if ms := max(d.Milliseconds(), 1); ms <= most {
		return strconv.FormatInt(ms, 10) + "m"
	}
	return strconv.FormatInt(min(int64(d/time.Second), most), 10) + "S"
}

// statusOf returns the error in a header or trailer, or nil.
func statusOf(h http.Header) error {
	code, err := strconv.ParseUint(h.Get("Grpc-Status"), 10, 32)
	if err != nil {
		return status.Error(codes.Internal, "response has no status")
	}
	if codes.Code(code) == codes.OK {
		return nil
	}
	message := h.Get("Grpc-Message")
	if plain, err := url.PathUnescape(message); err == nil {
		message = plain
	}
	return status.Error(codes.Code(code), message)
}

// Fields of ExecSyncResponse.
const (
	fieldStdout   protowire.Number = 1
	fieldStderr   protowire.Number = 2
	fieldExitCode protowire.Number = 3
)

// readMessage reads a gRPC message with an ExecSyncResponse. It returns io.EOF
// if there is none.
func readMessage(in *bufio.Reader, out *runtimeapi.ExecSyncResponse) error {
	var head [5]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	if head[0] != 0 {
		return status.Error(codes.Internal, "unexpected compressed response")
	}
	m := &messageReader{in: in, left: int64(binary.BigEndian.Uint32(head[1:]))}
	for m.left > 0 {
		if err := m.field(out); err != nil {
			return fmt.Errorf("read response: %w", err)
		}
	}
	return nil
}

// messageReader reads a protobuf message. left is how many bytes of it remain.
type messageReader struct {
	in   *bufio.Reader
	left int64
}

// errMalformed means that the bytes are not a valid protobuf message.
var errMalformed = status.Error(codes.Internal, "response is not an ExecSyncResponse")

// ReadByte implements io.ByteReader.
func (m *messageReader) ReadByte() (byte, error) {
	if m.left == 0 {
		return 0, errMalformed
	}
	b, err := m.in.ReadByte()
	if err != nil {
		return 0, noEOF(err)
	}
	m.left--
	return b, nil
}

// noEOF converts io.EOF within a message to io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (m *messageReader) varint() (uint64, error) {
	v, err := binary.ReadUvarint(m)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !isStatus(err) && m.left > 0 {
		return 0, errMalformed // more than 64 bits
	}
	return v, err
}

// field reads one field, and stores it in out if it is needed.
func (m *messageReader) field(out *runtimeapi.ExecSyncResponse) error {
	tag, err := m.varint()
	if err != nil {
		return err
	}
	number, kind := protowire.DecodeTag(tag)
	switch kind {
	case protowire.VarintType:
		v, err := m.varint()
		if number == fieldExitCode && err == nil {
			out.ExitCode = int32(uint32(v)) //nolint:gosec // an int32 is cut to its 32 bits (protobuf encoding)
		}
		return err
	case protowire.Fixed32Type:
		return m.discard(4)
	case protowire.Fixed64Type:
		return m.discard(8)
	case protowire.BytesType:
		n, err := m.varint()
		if err != nil {
			return err
		}
		if n > uint64(m.left) { //nolint:gosec // left is not negative
			return errMalformed
		}
		switch number {
		case fieldStdout:
			out.Stdout, err = m.keep(int64(n)) //nolint:gosec // at most left
		case fieldStderr:
			out.Stderr, err = m.keep(int64(n)) //nolint:gosec // at most left
		default:
			err = m.discard(int64(n)) //nolint:gosec // at most left
		}
		return err
	case protowire.StartGroupType, protowire.EndGroupType:
	}
	return errMalformed
}

// keep reads n bytes and returns the first container.MaxExecOutput of them.
func (m *messageReader) keep(n int64) ([]byte, error) {
	kept := make([]byte, min(n, container.MaxExecOutput))
	if _, err := io.ReadFull(m.in, kept); err != nil {
		return nil, noEOF(err)
	}
	m.left -= int64(len(kept))
	return kept, m.discard(n - int64(len(kept)))
}

func (m *messageReader) discard(n int64) error {
	if n > m.left {
		return errMalformed
	}
	for n > 0 {
		done, err := m.in.Discard(int(min(n, readBuffer)))
		m.left -= int64(done)
		n -= int64(done)
		if err != nil {
			return noEOF(err)
		}
	}
	return nil
}
