package native

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/native/store"
)

// imageOf returns an image in CRI's form.
func imageOf(i *store.Image) *runtimeapi.Image {
	out := &runtimeapi.Image{
		Id: i.ID.String(), RepoTags: slices.Clone(i.Tags), RepoDigests: slices.Clone(i.Digests), Size: uint64(max(i.Size, 0)), Pinned: i.Pinned,
	}
	user, _, _ := strings.Cut(i.Config.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		out.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		out.Username = user
	}
	return out
}

// ImageStatus implements container.Images.
func (d *Driver) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	i, err := d.Store.Image(ctx, image.GetImage())
	if err != nil || i == nil {
		return nil, err
	}
	return imageOf(i), nil
}

// ListImages implements container.Images.
func (d *Driver) ListImages(ctx context.Context, f *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	all, err := d.Store.Images(ctx)
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.Image
	ref := f.GetImage().GetImage()
	is := store.ImageIs(ref)
	for i := range all {
		if ref == "" || is(&all[i]) {
			out = append(out, imageOf(&all[i]))
		}
	}
	return out, nil
}

// RemoveImage implements container.Images.
func (d *Driver) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	i, err := d.Store.Image(ctx, image.GetImage())
	if err != nil || i == nil {
		return err
	}
	return d.Store.RemoveImage(ctx, i)
}

// PullImage implements container.Images.
func (d *Driver) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if err := d.pulls.take(ctx); err != nil {
		return "", fmt.Errorf("pull image %q: %w", image.GetImage(), err)
	}
	defer d.pulls.release()
	return d.Store.PullImage(ctx, &store.Pull{Name: image.GetImage(), Auth: auth, Received: d.Received}, d.HostDirs...)
}
