package fake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// defaultSize is an image's size in bytes unless the test sets another.
const defaultSize = 1 << 20

type image struct {
	name    string // canonical, with tag or digest
	record  *runtimeapi.Image
	program Program
}

func (i *image) digest() string { return i.record.GetRepoDigests()[0] }

// Pull is the behavior of pulling an image.
type Pull struct {
	// Program is what the image runs if the container has no command.
	Program Program
	// Err fails the pull; nil succeeds.
	Err error
	// Delay is how long the pull takes.
	Delay time.Duration
	// Auth rejects the credentials with an error, or accepts them with nil; a
	// nil Auth accepts all. It must not call the runtime.
	Auth func(*runtimeapi.AuthConfig) error
	// Failures is how many pulls fail with Err before they succeed. 0 with an
	// Err means that all fail.
	Failures int
}

// AddImage makes an image present. A container without a command runs p.
func (r *Runtime) AddImage(name string, p Program) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addImage(name, p)
}

func (r *Runtime) addImage(name string, p Program) *image {
	name = canonical(name)
	sum := sha256.Sum256([]byte(name))
	repository, _, _ := strings.Cut(name, "@")
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository = repository[:i]
	}
	img := &image{
		name: name,
		record: &runtimeapi.Image{
			Id:          fmt.Sprintf("sha256:%x", sum),
			RepoTags:    []string{name},
			RepoDigests: []string{fmt.Sprintf("%s@sha256:%x", repository, sha256.Sum256(sum[:]))},
			Size:        defaultSize,
		},
		program: p,
	}
	r.images[name] = img
	return img
}

// EditImage changes a present image as CRI reports it: its size, its user,
// whether it is pinned. ID and names must stay.
func (r *Runtime) EditImage(name string, edit func(*runtimeapi.Image)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	edit(r.images[canonical(name)].record)
}

// DropImage removes an image.
func (r *Runtime) DropImage(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.images, canonical(name))
}

// HasImage reports whether an image is present. It is not recorded as a call.
func (r *Runtime) HasImage(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.image(name) != nil
}

// SetPull sets the behavior of pulling an image. An image without a Pull is not
// in the registry.
func (r *Runtime) SetPull(name string, p Pull) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registry[canonical(name)] = &p
}

// image returns a present image by name or ID, or nil; the caller holds the
// lock.
func (r *Runtime) image(name string) *image {
	if img := r.images[canonical(name)]; img != nil {
		return img
	}
	for _, img := range r.images {
		if img.record.GetId() == name || img.digest() == name {
			return img
		}
	}
	return nil
}

// ImageStatus implements container.Images.
func (r *Runtime) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	return query(ctx, r, "ImageStatus", spec.GetImage(), r.timeout, func() (*runtimeapi.Image, error) {
		if img := r.image(spec.GetImage()); img != nil {
			return proto.CloneOf(img.record), nil
		}
		return nil, nil
	})
}

// PullImage implements container.Images.
func (r *Runtime) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (ref string, err error) {
	err = r.do(ctx, "PullImage", spec.GetImage(), 0, func(ctx context.Context) error {
		r.mu.Lock()
		pull, broken := r.registry[canonical(spec.GetImage())], r.broken
		var p Pull
		if pull != nil {
			p = *pull
		}
		r.mu.Unlock()
		if pull == nil {
			return fmt.Errorf("pull access denied, repository does not exist or may require authorization: %w", container.ErrNotFound)
		}
		if err := (&fault{Fault: Fault{Delay: p.Delay}}).apply(ctx, broken); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if p.Auth != nil {
			if err := p.Auth(auth); err != nil {
				return err
			}
		}
		if pull.Err != nil {
			failure := pull.Err
			if pull.Failures > 0 {
				if pull.Failures--; pull.Failures == 0 {
					pull.Err = nil
				}
			}
			return failure
		}
		ref = r.addImage(spec.GetImage(), p.Program).record.GetId()
		return nil
	})
	if err == nil && ref == "" {
		err = errors.New("empty image reference")
	}
	if err != nil {
		return "", err
	}
	return ref, nil
}

// canonical returns the full name that runtimes give to an image: with Docker
// Hub's domain for a short name, with latest if there is no tag or digest. A
// name that is invalid stays as it is.
func canonical(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	return reference.TagNameOnly(named).String()
}
