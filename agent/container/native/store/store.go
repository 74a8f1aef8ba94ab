// Package store keeps what the native driver has in containerd: the records of sandboxes and
// containers, the root file systems of containers, and the images. Everything is in the
// namespace of CRI, k8s.io, so that both drivers and `ctr` see the same images. The records
// carry no label of the CRI plugin, which ignores them therefore.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"

	"github.com/tinylet/tinylet/agent/container"
)

// Namespace is the containerd namespace of CRI.
const Namespace = "k8s.io"

// callTimeout limits each call that transfers no content.
const callTimeout = 2 * time.Minute

// Store is a client of containerd. It is safe for concurrent use. Its methods return the
// errors of package container.
type Store struct {
	client *client.Client
	// Snapshotter is the name of the snapshotter, such as overlayfs.
	snapshotter string
	platform    platforms.MatchComparer
	contents    contents
	unpacker    Unpacker
}

// New returns a Store on top of a client with Namespace as its default.
func New(c *client.Client, snapshotter string, platform platforms.MatchComparer, u Unpacker) *Store {
	return &Store{client: c, snapshotter: snapshotter, platform: platform, unpacker: u}
}

// call makes calls within callTimeout.
func call[T any](ctx context.Context, do func(context.Context) (T, error), format string, args ...any) (T, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := do(limited)
	return out, wrap(ctx, err, format, args...)
}

// wrap adds what was attempted to an error, and maps it to the errors of package container.
func wrap(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	for kind, is := range map[error]func(error) bool{
		container.ErrNotFound: errdefs.IsNotFound, container.ErrUnavailable: errdefs.IsUnavailable,
		container.ErrTimeout: errdefs.IsDeadlineExceeded, container.ErrUnsupported: errdefs.IsNotImplemented,
	} {
		if is(err) && !errors.Is(err, kind) {
			return fmt.Errorf("%s: %w: %w", what, kind, err)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Version returns the version of containerd.
func (s *Store) Version(ctx context.Context) (string, error) {
	v, err := call(ctx, s.client.Version, "get version of containerd")
	return v.Version, err
}
