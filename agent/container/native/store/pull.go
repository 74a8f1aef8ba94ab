package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/containerd"
)

// Pull describes the pull of an image.
type Pull struct {
	// Name is the name of the image. Without a tag and a digest its tag is latest.
	Name string
	// Auth are the credentials, nil for none.
	Auth *runtimeapi.AuthConfig
	// Received is called with the bytes of content that were received, for each part of a
	// blob. It may be nil.
	Received func(bytes int)
}

// leaseTime is how long containerd keeps the content of a pull that was interrupted, so that
// the next one resumes it.
const leaseTime = 24 * time.Hour

// labelManaged marks images of CRI (containerd's internal/cri/labels).
const labelManaged = "io.cri-containerd.image"

// PullImage pulls an image for the platform, unpacks it, and returns its ID. Blobs are
// received one at a time; what an interrupted pull has received of a blob is not received
// again. Mirrors and certificates of registries are those of hosts.toml in the directories
// (containerd's docs/hosts.md).
func (s *Store) PullImage(ctx context.Context, p *Pull, hostDirs ...string) (string, error) {
	named, err := reference.ParseDockerRef(p.Name)
	if err != nil {
		return "", fmt.Errorf("pull image: parse name %q: %w", p.Name, err)
	}
	id, err := s.pull(ctx, p, named, hostDirs)
	return id, wrap(ctx, err, "pull image %q", named.String())
}

func (s *Store) pull(ctx context.Context, p *Pull, named reference.Named, hostDirs []string) (string, error) {
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, config.HostOptions{
		HostDir:     hostDir(hostDirs),
		Credentials: func(host string) (user, secret string, err error) { return credentials(p.Auth, host) },
	})})
	name, target, err := resolver.Resolve(ctx, named.String())
	if err != nil {
		return "", err
	}
	fetcher, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return "", err
	}
	leased, release, err := s.lease(ctx, target)
	if err != nil {
		return "", err
	}
	if err := s.fetch(leased, fetcher, target, p.Received); err != nil {
		return "", err
	}
	if _, err := s.unpacker.Unpack(leased, target, s.platform, s.snapshotter); err != nil {
		return "", err
	}
	image, err := s.readContent(leased, target)
	if err != nil {
		return "", err
	}
	for _, n := range names(named, image) {
		if err := s.setName(leased, n, target); err != nil {
			return "", err
		}
	}
	return image.ID.String(), release()
}

// hostDir returns the directory with the hosts.toml of a registry.
func hostDir(dirs []string) func(string) (string, error) {
	return func(host string) (string, error) {
		for _, dir := range dirs {
			found, err := config.HostDirFromRoot(dir)(host)
			if err == nil && found != "" || err != nil && !errdefs.IsNotFound(err) {
				return found, err
			}
		}
		return "", errdefs.ErrNotFound
	}
}

// credentials returns those for a registry: a user and a password, or a token without a user
// (ParseAuth in containerd's internal/cri/server/images/image_pull.go).
func credentials(auth *runtimeapi.AuthConfig, host string) (user, secret string, err error) {
	if auth == nil {
		return "", "", nil
	}
	if auth.GetServerAddress() != "" {
		u, err := url.Parse(auth.GetServerAddress())
		if err != nil {
			return "", "", errors.New("parse server address of credentials") // the error has the address
		}
		if u.Host != host {
			return "", "", nil
		}
	}
	switch {
	case auth.GetUsername() != "":
		return auth.GetUsername(), auth.GetPassword(), nil
	case auth.GetIdentityToken() != "":
		return "", auth.GetIdentityToken(), nil
	case auth.GetAuth() != "":
		data, err := base64.StdEncoding.DecodeString(auth.GetAuth())
		user, password, ok := strings.Cut(string(data), ":")
		if err != nil || !ok {
			return "", "", errors.New("decode credentials: want user:password in base64")
		}
		return user, strings.Trim(password, "\x00"), nil
	}
	return "", "", nil
}

// lease makes a lease for the content of an image, which release ends.
func (s *Store) lease(ctx context.Context, target ocispec.Descriptor) (leased context.Context, release func() error, err error) {
	id := "tinylet-pull-" + target.Digest.Encoded()
	service := s.client.LeasesService()
	_, err = call(ctx, func(ctx context.Context) (leases.Lease, error) {
		l, err := service.Create(ctx, leases.WithID(id), leases.WithExpiration(leaseTime))
		if errdefs.IsAlreadyExists(err) {
			err = nil
		}
		return l, err
	}, "create lease of pull")
	release = func() error {
		_, err := call(ctx, func(ctx context.Context) (struct{}, error) {
			err := service.Delete(ctx, leases.Lease{ID: id})
			if errdefs.IsNotFound(err) {
				err = nil
			}
			return struct{}{}, err
		}, "delete lease of pull")
		return err
	}
	return leases.WithLease(ctx, id), release, err
}

// fetch receives the content of an image for the platform.
func (s *Store) fetch(ctx context.Context, fetcher remotes.Fetcher, target ocispec.Descriptor, received func(int)) error {
	blobs := s.client.ContentStore()
	children := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(blobs), s.platform), s.platform, 1)
	receive := remotes.FetchHandler(blobs, counter{fetcher, received})
	return images.Walk(ctx, images.Handlers(
		images.HandlerFunc(checkSize),
		images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
			more, err := receive(ctx, d)
			if errdefs.IsFailedPrecondition(err) { // the digest is another one
				// Otherwise the next pull would find all bytes received.
				err = errors.Join(fmt.Errorf("%w: %w", container.ErrCorrupt, err), blobs.Abort(ctx, remotes.MakeRefKey(ctx, d)))
			}
			return more, err
		}),
		images.SetChildrenLabels(blobs, children),
	), target)
}

// checkSize refuses indexes, manifests and configurations that are too large to be read.
func checkSize(_ context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	if !images.IsLayerType(d.MediaType) && d.Size > containerd.MaxDocument {
		return nil, fmt.Errorf("%s %s has %d bytes, at most %d", d.MediaType, d.Digest, d.Size, containerd.MaxDocument)
	}
	return nil, nil
}

// counter counts what is received of blobs.
type counter struct {
	remotes.Fetcher
	received func(int)
}

func (c counter) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	r, err := c.Fetcher.Fetch(ctx, d)
	if err != nil || c.received == nil {
		return r, err
	}
	return countedBlob{r, c.received}, nil
}

// countedBlob can be read from an offset, for a pull that is resumed.
type countedBlob struct {
	io.ReadCloser
	received func(int)
}

func (b countedBlob) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.received(n)
	}
	return n, err
}

// Seek implements io.Seeker.
func (b countedBlob) Seek(offset int64, whence int) (int64, error) {
	s, ok := b.ReadCloser.(io.Seeker)
	if !ok {
		return 0, errors.New("blob cannot be read from an offset")
	}
	return s.Seek(offset, whence)
}

// names returns the names of a pulled image, as of CRI: its ID, with the tag, and with the
// digest (GetRepoDigestAndTag in containerd's internal/cri/util).
func names(named reference.Named, image *Image) []string {
	out := []string{image.ID.String()}
	if tagged, ok := named.(reference.NamedTagged); ok {
		out = append(out, tagged.Name()+":"+tagged.Tag())
	}
	return append(out, named.Name()+"@"+image.Target.Digest.String())
}

// setName makes a name refer to an image.
func (s *Store) setName(ctx context.Context, name string, target ocispec.Descriptor) error {
	image := images.Image{Name: name, Target: target, Labels: map[string]string{labelManaged: "managed"}}
	service := s.client.ImageService()
	_, err := call(ctx, func(ctx context.Context) (images.Image, error) {
		i, err := service.Create(ctx, image)
		if errdefs.IsAlreadyExists(err) {
			i, err = service.Update(ctx, image, "target", "labels."+labelManaged)
		}
		return i, err
	}, "name image %q", name)
	return err
}
