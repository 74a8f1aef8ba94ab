package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tinylet/tinylet/agent/container"
)

// chunk is the size of a write request in bytes.
const chunk = 128 << 10

// refLabel is the prefix of the labels by which containerd's garbage collector finds
// the blobs that a blob references (docs/garbage-collection.md).
const refLabel = "containerd.io/gc.ref.content."

func labelsOf(b container.Blob) map[string]string {
	if len(b.Refs) == 0 {
		return nil
	}
	labels := make(map[string]string, len(b.Refs))
	for role, digest := range b.Refs {
		labels[refLabel+role] = digest
	}
	return labels
}

// Put stores a blob; r must start at its beginning. It resumes an earlier interrupted
// Put of the same blob: it seeks r to the stored offset if r is an io.Seeker, and
// otherwise reads and discards the data before it. Content that does not match the
// digest returns container.ErrCorrupt. Errors of r are wrapped. Only ctx limits the
// duration.
func (s *Store) Put(ctx context.Context, b container.Blob, r io.Reader) error {
	if err := s.connect(); err != nil {
		return err
	}
	err := s.put(ctx, b, r)
	if status.Code(err) == codes.AlreadyExists {
		return s.relabel(ctx, b)
	}
	return err
}

// relabel sets the labels of a blob that exists already: another client may have
// stored it without them.
func (s *Store) relabel(ctx context.Context, b container.Blob) error {
	labels := labelsOf(b)
	if labels == nil {
		return nil
	}
	var info, m message // content.Info, content.UpdateRequest
	info.text(1, b.Digest)
	info.dict(5, labels)
	m.data(1, info)
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		paths = append(paths, "labels."+key)
	}
	m.mask(2, paths)
	return wrap(ctx, s.call(ctx, "content.v1.Content/Update", m), "label content %s", b.Digest)
}

func (s *Store) put(ctx context.Context, b container.Blob, r io.Reader) error {
	streamed, cancel := context.WithCancel(withHeaders(ctx))
	defer cancel() // ends the stream in any state
	stream, err := s.conn.NewStream(streamed, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, service+"content.v1.Content/Write")
	if err != nil {
		return wrap(ctx, err, "write content %s", b.Digest)
	}
	w := &writer{stream: stream, request: writeRequest{ref: lease + "-" + b.Digest, total: b.Size, expected: b.Digest}}
	w.request.action = actionStat
	begin, err := w.send()
	switch {
	case status.Code(err) == codes.AlreadyExists:
		return err
	case err != nil:
		return wrap(ctx, err, "write content %s", b.Digest)
	case begin > b.Size:
		begin = 0 // writing at 0 discards the stored data
	}
	if err := skip(r, begin); err != nil {
		return fmt.Errorf("skip content %s to offset %d: %w", b.Digest, begin, err)
	}
	if err := w.copy(ctx, b, r, begin); err != nil {
		return err
	}
	w.request.action, w.request.data, w.request.labels = actionCommit, nil, labelsOf(b)
	w.request.total, w.request.expected = b.Size, b.Digest
	_, err = w.send()
	switch code := status.Code(err); {
	case code == codes.FailedPrecondition:
		return s.abort(ctx, b, begin, status.Convert(err).Message())
	case code == codes.AlreadyExists:
		return err
	}
	return wrap(ctx, err, "commit content %s", b.Digest)
}

// abort aborts a write that failed the digest check, and returns the error. It returns
// no ErrCorrupt if the write was resumed, because a power cut may have corrupted the
// data of the earlier Put.
func (s *Store) abort(ctx context.Context, b container.Blob, begin int64, why string) error {
	var m message // content.AbortRequest
	m.text(1, lease+"-"+b.Digest)
	err := s.call(ctx, "content.v1.Content/Abort", m)
	if status.Code(err) == codes.NotFound {
		err = nil
	}
	err = wrap(ctx, err, "abort write of content %s", b.Digest)
	if begin > 0 {
		return errors.Join(fmt.Errorf("commit content %s, resumed at offset %d: %s", b.Digest, begin, why), err)
	}
	return errors.Join(fmt.Errorf("commit content %s: %w: %s", b.Digest, container.ErrCorrupt, why), err)
}

// skip advances r by n bytes from its beginning.
func skip(r io.Reader, n int64) error {
	if n == 0 {
		return nil
	}
	if s, ok := r.(io.Seeker); ok {
		_, err := s.Seek(n, io.SeekStart)
		return err
	}
	_, err := io.CopyN(io.Discard, r, n)
	return err
}

// writer is one write stream.
type writer struct {
	stream  grpc.ClientStream
	request writeRequest
	buf     message
	answer  message
}

// send sends the request and returns the current end of the content.
func (w *writer) send() (offset int64, err error) {
	w.buf = w.request.encode(w.buf)
	if err := w.stream.SendMsg(w.buf); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	// After an EOF, RecvMsg returns the error that ended the stream.
	if err := w.stream.RecvMsg(&w.answer); err != nil {
		return 0, err
	}
	return writtenOffset(w.answer)
}

// copy writes the content of r, which is at offset begin.
func (w *writer) copy(ctx context.Context, b container.Blob, r io.Reader, begin int64) error {
	data := make([]byte, min(chunk, b.Size-begin))
	w.request.action, w.request.offset = actionWrite, begin
	w.request.total, w.request.expected = 0, "" // with a digest, containerd looks it up for each request
	for w.request.offset < b.Size {
		data = data[:min(int64(len(data)), b.Size-w.request.offset)]
		if _, err := io.ReadFull(r, data); err != nil {
			return fmt.Errorf("read content %s at %d: %w", b.Digest, w.request.offset, err)
		}
		w.request.data = data
		end, err := w.send()
		if err != nil {
			return wrap(ctx, err, "write content %s at %d", b.Digest, w.request.offset)
		}
		if want := w.request.offset + int64(len(data)); end != want {
			return fmt.Errorf("write content %s: containerd reports offset %d, want %d", b.Digest, end, want)
		}
		w.request.offset = end
	}
	return nil
}
