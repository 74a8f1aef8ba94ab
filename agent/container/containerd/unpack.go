package containerd

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// Labels of containerd (core/unpack/unpacker.go, pkg/labels).
const (
	labelUncompressed   = "containerd.io/uncompressed"
	labelSnapshotRef    = "containerd.io/snapshot.ref"
	labelSnapshotPrefix = "containerd.io/gc.ref.snapshot."
)

// MaxDocument bounds an index, a manifest or a configuration of an image in bytes. It is the
// limit of containerd's resolver for a manifest (core/remotes/docker).
const MaxDocument = 4 << 20

// ErrDocument means that an image is not valid.
var ErrDocument = errors.New("invalid image")

// Unpack unpacks the layers of an image for a platform with a snapshotter, and returns the
// name of the snapshot of its root file system. Its blobs must have been stored with Put, or
// by the owner of the lease of ctx (leases.WithLease).
// Layers that are unpacked already are not unpacked again.
//
// containerd syncs the file system after each layer, before it records the layer, so that a
// layer is complete after a power cut (containerd 1.7.18 and later). A layer that containerd
// unpacks itself, when it creates the first container of an image, is not synced.
func (s *Store) Unpack(ctx context.Context, target ocispec.Descriptor, platform platforms.MatchComparer, snapshotter string) (chainID string, err error) {
	if err := s.connect(); err != nil {
		return "", err
	}
	manifest, diffIDs, err := s.layers(ctx, target, platform)
	if err != nil {
		return "", wrap(ctx, err, "read image %s", target.Digest)
	}
	chain := identity.ChainIDs(append([]digest.Digest(nil), diffIDs...))
	parent := ""
	for i, layer := range manifest.Layers {
		if err := s.unpackLayer(ctx, snapshotter, layer, diffIDs[i], parent, chain[i].String()); err != nil {
			return "", wrap(ctx, err, "unpack layer %d of %d of image %s", i+1, len(chain), target.Digest)
		}
		parent = chain[i].String()
	}
	// The snapshot lives as long as the configuration of the image.
	err = s.unpackCall(ctx, func(ctx context.Context) error {
		return s.label(ctx, manifest.Config.Digest, labelSnapshotPrefix+snapshotter, parent)
	})
	return parent, wrap(ctx, err, "label configuration of image %s", target.Digest)
}

// layers returns the manifest of an image for a platform, and the diff IDs of its layers.
func (s *Store) layers(ctx context.Context, target ocispec.Descriptor, platform platforms.MatchComparer) (ocispec.Manifest, []digest.Digest, error) {
	ctx, cancel := context.WithTimeout(leased(ctx), callTimeout)
	defer cancel()
	from := Documents{s.client.ContentStore()}
	manifest, err := images.Manifest(ctx, from, target, platform)
	if err != nil {
		return manifest, nil, err
	}
	diffIDs, err := images.RootFS(ctx, from, manifest.Config)
	if err != nil {
		return manifest, nil, err
	}
	if len(diffIDs) != len(manifest.Layers) || len(diffIDs) == 0 {
		return manifest, nil, fmt.Errorf("%w: %d layers and %d diff IDs", ErrDocument, len(manifest.Layers), len(diffIDs))
	}
	return manifest, diffIDs, nil
}

// Documents reads the indexes, manifests and configurations of images. A blob of more than
// MaxDocument is ErrDocument.
type Documents struct{ content.Provider }

// ReaderAt implements content.Provider.
func (d Documents) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	r, err := d.Provider.ReaderAt(ctx, desc)
	if err == nil && r.Size() > MaxDocument {
		err = errors.Join(fmt.Errorf("%w: %s has %d bytes, at most %d", ErrDocument, desc.Digest, r.Size(), MaxDocument), r.Close())
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// unpackLayer unpacks a layer into the snapshot chainID, unless that exists. Only ctx limits
// the extraction.
func (s *Store) unpackLayer(ctx context.Context, snapshotter string, layer ocispec.Descriptor, diffID digest.Digest, parent, chainID string) error {
	sn := s.client.SnapshotService(snapshotter)
	mounts, key, err := s.prepare(ctx, sn, diffID, parent, chainID)
	if err != nil || key == "" {
		return err
	}
	unpacked, err := s.client.DiffService().Apply(leased(ctx), layer, mounts, diff.WithSyncFs(true))
	if err == nil && unpacked.Digest != diffID {
		err = fmt.Errorf("%w: layer %s has the diff ID %s, want %s", container.ErrCorrupt, layer.Digest, unpacked.Digest, diffID)
	}
	return s.unpackCall(ctx, func(ctx context.Context) error {
		if err == nil {
			err = sn.Commit(ctx, chainID, key)
		}
		if err != nil {
			removeErr := sn.Remove(ctx, key)
			if errdefs.IsAlreadyExists(err) { // containerd has unpacked it meanwhile
				err = nil
			}
			return errors.Join(err, removeErr)
		}
		return s.label(ctx, layer.Digest, labelUncompressed, diffID.String())
	})
}

// prepare makes an empty snapshot on top of parent. key is its name, or "" if the snapshot
// chainID exists.
func (s *Store) prepare(ctx context.Context, sn snapshots.Snapshotter, diffID digest.Digest, parent, chainID string) (mounts []mount.Mount, key string, err error) {
	err = s.unpackCall(ctx, func(ctx context.Context) error {
		if _, err := sn.Stat(ctx, chainID); !errdefs.IsNotFound(err) {
			return err
		}
		// One process unpacks: what has the name is of an unpacking that was interrupted.
		key = leaseID + "-" + chainID
		options := snapshots.WithLabels(map[string]string{labelSnapshotRef: chainID, labelUncompressed: diffID.String()})
		mounts, err = sn.Prepare(ctx, key, parent, options)
		if !errdefs.IsAlreadyExists(err) {
			return err
		}
		if err := sn.Remove(ctx, key); err != nil {
			return err
		}
		mounts, err = sn.Prepare(ctx, key, parent, options)
		return err
	})
	return mounts, key, err
}

// label sets a label of a blob.
func (s *Store) label(ctx context.Context, blob digest.Digest, key, value string) error {
	_, err := s.client.ContentStore().Update(ctx, content.Info{Digest: blob, Labels: map[string]string{key: value}}, "labels."+key)
	return err
}

// leased returns a context with a lease: the caller's, or else that of the package.
func leased(ctx context.Context) context.Context {
	if _, ok := leases.FromContext(ctx); ok {
		return ctx
	}
	return leases.WithLease(ctx, leaseID)
}

// unpackCall makes calls with the lease and within callTimeout.
func (s *Store) unpackCall(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(leased(ctx), callTimeout)
	defer cancel()
	return do(ctx)
}
