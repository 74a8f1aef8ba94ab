package volume

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/disk"
)

// OverLimit is an emptyDir volume that holds more than it may.
type OverLimit struct {
	Volume string
	// Used is at least how many bytes of the disk it takes; counting stopped
	// there.
	Used int64
	// Limit is the volume's sizeLimit.
	Limit resource.Quantity
}

// Message is what the pod's status says when it is evicted for it
// (pkg/kubelet/eviction/helpers.go).
func (o OverLimit) Message() string {
	return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q.", o.Volume, o.Limit.String())
}

// Usage measures the pod's emptyDir volumes on disk that have a sizeLimit, and
// answers those that are over it: by the blocks that are allocated to what is
// in them, on their own file system, counted as agent/disk tells them. Those in
// memory cannot grow beyond theirs. It costs one system call for each file,
// stops soon after a limit is passed, and keeps on with the next volume where one cannot be measured. It
// blocks on the disk until ctx ends.
func (v *Volumes) Usage(ctx context.Context, p *v1.Pod) ([]OverLimit, error) {
	var over []OverLimit
	var errs []error
	for i := range p.Spec.Volumes {
		volume := &p.Spec.Volumes[i]
		source := volume.EmptyDir
		if source == nil || source.Medium != v1.StorageMediumDefault || source.SizeLimit == nil || source.SizeLimit.Sign() <= 0 {
			continue
		}
		used, err := v.usage(ctx, string(p.UID), volume.Name, source.SizeLimit)
		if err != nil {
			errs = append(errs, fmt.Errorf("measure volume %q: %w", volume.Name, err))
			continue
		}
		if source.SizeLimit.CmpInt64(used) < 0 {
			over = append(over, OverLimit{Volume: volume.Name, Used: used, Limit: source.SizeLimit.DeepCopy()})
		}
	}
	return over, errors.Join(errs...)
}

// usage counts the bytes of one volume until they pass the limit. A volume
// that is not there has none.
func (v *Volumes) usage(ctx context.Context, uid, name string, limit *resource.Quantity) (int64, error) {
	dir, err := v.openVolume(uid, dirEmptyDir, name)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	var w disk.Walk
	used := func() int64 { return int64(min(w.Usage().Bytes, math.MaxInt64)) }
	over := func() bool { return limit.CmpInt64(used()) < 0 }
	new(disk.Walker).Step(&w, dir, math.MaxInt, func() bool { return ctx.Err() != nil || over() })
	switch {
	case over():
		return used(), nil // what could not be counted only adds to it
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	}
	return used(), w.Err()
}

// openVolume opens the directory of a pod's volume.
func (v *Volumes) openVolume(uid, plugin, name string) (int, error) {
	if err := errors.Join(component(uid), component(name)); err != nil {
		return -1, err
	}
	pods, err := unix.Open(filepath.Join(v.root, dirPods), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pods)
	return openat2(pods, filepath.Join(uid, dirVolumes, plugin, name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}
