package containerd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// leaseID is the ID of the agent's lease. The lease persists over restarts of the agent,
// so that data written before a power cut is still there.
const leaseID = "tinylet-preload"

// chunk is the size of a write request in bytes. content.Copy is not used: its requests
// of 1 MiB do not fit into gRPC's pooled buffers, so each would be allocated again.
const chunk = 128 << 10

// Store is a client of containerd's content and image stores. It is not safe for concurrent
// use. It keeps its connection until Release or Close.
type Store struct {
	path   string
	client *client.Client
}

// Protect creates the lease, which protects the blobs of subsequent Puts until
// Release, also over restarts of containerd or the agent.
func (s *Store) Protect(ctx context.Context) error {
	err := s.call(ctx, func(ctx context.Context) error {
		_, err := s.client.LeasesService().Create(ctx, leases.WithID(leaseID))
		return err
	})
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	return wrap(ctx, err, "create lease %q", leaseID)
}

// Release deletes the lease and closes the connection: containerd may then remove
// blobs that no image references. A missing lease is no error.
func (s *Store) Release(ctx context.Context) error {
	err := s.call(ctx, func(ctx context.Context) error {
		return s.client.LeasesService().Delete(ctx, leases.Lease{ID: leaseID})
	})
	if errdefs.IsNotFound(err) {
		err = nil
	}
	return errors.Join(wrap(ctx, err, "delete lease %q", leaseID), s.Close())
}

// Close closes the connection, if there is one. The lease stays.
func (s *Store) Close() error {
	if s.client == nil {
		return nil
	}
	c := s.client
	s.client = nil
	if err := c.Close(); err != nil {
		return fmt.Errorf("close connection to %q: %w", s.path, err)
	}
	return nil
}

// Tag creates the image name with the target b, or updates its target. b must have
// been stored with Put. CRI receives an event of the new image and adds its labels;
// with its label set already, CRI would not create the image's name by ID.
func (s *Store) Tag(ctx context.Context, name string, b container.Blob) error {
	image := images.Image{Name: name, Target: ocispec.Descriptor{MediaType: b.MediaType, Digest: b.Digest, Size: b.Size}}
	err := s.call(ctx, func(ctx context.Context) error {
		_, err := s.client.ImageService().Create(ctx, image)
		if errdefs.IsAlreadyExists(err) {
			_, err = s.client.ImageService().Update(ctx, image, "target")
		}
		return err
	})
	return wrap(ctx, err, "tag image %q", name)
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
	err := s.write(ctx, b, r)
	if errdefs.IsAlreadyExists(err) {
		return s.relabel(ctx, b)
	}
	return err
}

// write writes a blob and commits it with its labels. It returns errdefs.ErrAlreadyExists
// if containerd has the blob.
func (s *Store) write(ctx context.Context, b container.Blob, r io.Reader) error {
	stream, cancel := context.WithCancel(leases.WithLease(ctx, leaseID))
	defer cancel() // the writer's Close does not end the stream in every state
	w, err := s.client.ContentStore().Writer(stream, content.WithRef(writeRef(b.Digest)),
		content.WithDescriptor(ocispec.Descriptor{Digest: b.Digest, Size: b.Size}))
	if err != nil {
		return wrap(ctx, err, "write content %s", b.Digest)
	}
	begin, err := resume(w, b, r)
	if err != nil {
		return wrap(ctx, err, "resume content %s", b.Digest)
	}
	if err := copyRest(w, r, b.Size-begin); err != nil {
		return wrap(ctx, err, "write content %s", b.Digest)
	}
	err = w.Commit(stream, b.Size, b.Digest, content.WithLabels(gcLabels(b)))
	if errdefs.IsFailedPrecondition(err) {
		return s.abort(ctx, b, begin, err)
	}
	return wrap(ctx, err, "commit content %s", b.Digest)
}

// writeRef returns the key of an unfinished write in containerd.
func writeRef(d digest.Digest) string { return leaseID + "-" + d.String() }

// resume advances r to the offset up to which containerd has the content, and returns
// it. If containerd has more than the blob, that is discarded.
func resume(w content.Writer, b container.Blob, r io.Reader) (begin int64, err error) {
	status, err := w.Status()
	if err != nil {
		return 0, err
	}
	if begin = status.Offset; begin > b.Size {
		begin = 0
		if err := w.Truncate(0); err != nil {
			return 0, err
		}
	}
	if begin == 0 {
		return 0, nil
	}
	if seeker, ok := r.(io.Seeker); ok {
		_, err = seeker.Seek(begin, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, r, begin)
	}
	return begin, err
}

// copyRest writes the next n bytes of r in requests of the size chunk.
func copyRest(w io.Writer, r io.Reader, n int64) error {
	buffered := bufio.NewWriterSize(w, int(min(chunk, n)))
	read, err := buffered.ReadFrom(io.LimitReader(r, n))
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil && read < n {
		err = fmt.Errorf("read %d of %d bytes: %w", read, n, io.ErrUnexpectedEOF)
	}
	return err
}

// abort aborts a write that failed the digest check, and returns the error. It returns
// no ErrCorrupt if the write was resumed, because a power cut may have corrupted the
// data of the earlier Put.
func (s *Store) abort(ctx context.Context, b container.Blob, begin int64, cause error) error {
	err := s.call(ctx, func(ctx context.Context) error { return s.client.ContentStore().Abort(ctx, writeRef(b.Digest)) })
	if errdefs.IsNotFound(err) {
		err = nil
	}
	err = wrap(ctx, err, "abort write of content %s", b.Digest)
	if begin > 0 {
		return errors.Join(fmt.Errorf("commit content %s, resumed at offset %d: %w", b.Digest, begin, cause), err)
	}
	return errors.Join(fmt.Errorf("commit content %s: %w: %w", b.Digest, container.ErrCorrupt, cause), err)
}

// relabel sets the labels of a blob that exists already: another client may have
// stored it without them.
func (s *Store) relabel(ctx context.Context, b container.Blob) error {
	set := gcLabels(b)
	if set == nil {
		return nil
	}
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(set)) {
		paths = append(paths, "labels."+key)
	}
	err := s.call(ctx, func(ctx context.Context) error {
		_, err := s.client.ContentStore().Update(ctx, content.Info{Digest: b.Digest, Labels: set}, paths...)
		return err
	})
	return wrap(ctx, err, "label content %s", b.Digest)
}

// gcLabelPrefix is the prefix of the labels by which containerd's garbage collector
// finds the blobs that a blob references (docs/garbage-collection.md).
const gcLabelPrefix = "containerd.io/gc.ref.content."

// gcLabels returns a blob's labels for the garbage collector, or nil if it has none.
func gcLabels(b container.Blob) map[string]string {
	if len(b.Refs) == 0 {
		return nil
	}
	set := make(map[string]string, len(b.Refs))
	for role, d := range b.Refs {
		set[gcLabelPrefix+role] = d.String()
	}
	return set
}

// call connects if necessary, and makes calls with the lease and within callTimeout.
func (s *Store) call(ctx context.Context, do func(context.Context) error) error {
	if err := s.connect(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(leases.WithLease(ctx, leaseID), callTimeout)
	defer cancel()
	return do(ctx)
}

// connect creates the client if there is none. The client's first call connects.
func (s *Store) connect() error {
	if s.client != nil {
		return nil
	}
	c, err := dial(s.path)
	s.client = c
	return err
}
