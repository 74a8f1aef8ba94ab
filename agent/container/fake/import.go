package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/tinylet/tinylet/agent/container"
)

// store is content that images are made of. Content that is neither protected
// nor referenced by an image is removed, as by containerd's garbage collector.
type store struct {
	blobs     map[digest.Digest]container.Blob
	partial   map[digest.Digest][]byte // the data of an interrupted Put
	targets   map[string]digest.Digest // by image name
	protected bool
	// read is the number of bytes that Put has read so far.
	read int64
}

// Protect protects content from garbage collection until Release.
func (r *Runtime) Protect(ctx context.Context) error {
	return r.doLocked(ctx, "Protect", "", r.timeout, func() error {
		r.store.protected = true
		return nil
	})
}

// Release ends the protection. It is no error if there is none.
func (r *Runtime) Release(ctx context.Context) error {
	return r.doLocked(ctx, "Release", "", r.timeout, func() error {
		r.store.protected = false
		clear(r.store.partial)
		r.collect()
		return nil
	})
}

// CollectContent collects garbage, which containerd may do at any time: it
// removes content that is not protected.
func (r *Runtime) CollectContent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collect()
}

func (r *Runtime) collect() {
	if r.store.protected {
		return
	}
	needed := make(map[digest.Digest]bool)
	var need func(digest.Digest)
	need = func(d digest.Digest) {
		b, ok := r.store.blobs[d]
		if !ok || needed[d] {
			return
		}
		needed[d] = true
		for _, ref := range b.Refs {
			need(ref)
		}
	}
	for name, target := range r.store.targets {
		if r.images[name] == nil {
			delete(r.store.targets, name)
			continue
		}
		need(target)
	}
	maps.DeleteFunc(r.store.blobs, func(d digest.Digest, _ container.Blob) bool { return !needed[d] })
}

// Put stores a blob. It resumes an interrupted Put.
func (r *Runtime) Put(ctx context.Context, b container.Blob, from io.Reader) error {
	return r.do(ctx, "Put", b.Digest.String(), 0, func(ctx context.Context) error {
		r.mu.Lock()
		broken := r.broken
		have, done := r.store.blobs[b.Digest]
		data := slices.Clone(r.store.partial[b.Digest])
		if done {
			have.Refs = b.Refs
			r.store.blobs[b.Digest] = have
		}
		r.mu.Unlock()
		if done {
			return nil
		}
		if _, err := io.CopyN(io.Discard, from, int64(len(data))); err != nil {
			return fmt.Errorf("read content %s: %w", b.Digest, err)
		}
		data, err := r.receive(ctx, b, data, from, broken)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.store.partial[b.Digest] = data
			return err
		}
		delete(r.store.partial, b.Digest)
		if got := digest.FromBytes(data); got != b.Digest {
			return fmt.Errorf("commit content %s: %w: it is %s", b.Digest, container.ErrCorrupt, got)
		}
		r.store.blobs[b.Digest] = b
		return nil
	})
}

// receive reads until the blob is complete or the runtime goes away.
func (r *Runtime) receive(ctx context.Context, b container.Blob, data []byte, from io.Reader, broken <-chan struct{}) ([]byte, error) {
	buf := make([]byte, 512)
	for int64(len(data)) < b.Size {
		select {
		case <-broken:
			return data, container.ErrUnavailable
		case <-ctx.Done():
			return data, ctx.Err()
		default:
		}
		n, err := from.Read(buf[:min(int64(len(buf)), b.Size-int64(len(data)))])
		data = append(data, buf[:n]...)
		r.mu.Lock()
		r.store.read += int64(n)
		r.mu.Unlock()
		if err != nil && int64(len(data)) < b.Size {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return data, fmt.Errorf("read content %s: %w", b.Digest, err)
		}
	}
	return data, nil
}

// Tag creates an image from blobs, which must all be stored.
func (r *Runtime) Tag(ctx context.Context, name string, b container.Blob) error {
	return r.doLocked(ctx, "Tag", name, r.timeout, func() error {
		if err := r.complete(b.Digest); err != nil {
			return err
		}
		img := r.addImage(name, Program{})
		r.store.targets[img.name] = b.Digest
		return nil
	})
}

func (r *Runtime) complete(d digest.Digest) error {
	b, ok := r.store.blobs[d]
	if !ok {
		return fmt.Errorf("content %s: %w", d, container.ErrNotFound)
	}
	for _, ref := range b.Refs {
		if err := r.complete(ref); err != nil {
			return err
		}
	}
	return nil
}

// Blobs returns the digests of all complete content, sorted.
func (r *Runtime) Blobs() []digest.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.store.blobs))
}

// ContentRead returns the number of bytes that Put has read so far.
func (r *Runtime) ContentRead() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store.read
}
