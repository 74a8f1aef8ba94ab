package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/pod"
)

// Usage is the size of a filesystem and its free space, in bytes. Available is
// the space that is available to users other than root.
type Usage struct {
	Capacity, Available int64
}

// percent returns the used share in percent, rounded up as in the kubelet. It returns 0 for
// a capacity of 0.
func (u Usage) percent() int {
	capacity, available := u.Capacity, u.Available
	for capacity > math.MaxInt64/100 {
		capacity, available = capacity/2, available/2
	}
	if capacity <= 0 {
		return 0
	}
	return 100 - int(available*100/capacity)
}

// bytesToFree returns how many bytes must be freed so that at most low percent are used. It
// returns 0 if no more are used.
func (u Usage) bytesToFree(low int) int64 {
	target := u.Capacity/100*int64(100-low) + u.Capacity%100*int64(100-low)/100
	return max(target-u.Available, 0)
}

func statfs(path string) (Usage, error) {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	for errors.Is(err, unix.EINTR) {
		err = unix.Statfs(path, &st)
	}
	if err != nil {
		return Usage{}, fmt.Errorf("statfs: %w", err)
	}
	unit := cmp.Or(int64(st.Frsize), int64(st.Bsize))
	return Usage{Capacity: int64(st.Blocks) * unit, Available: int64(st.Bavail) * unit}, nil
}

// usage measures the filesystem where the runtime stores images. It queries the runtime for
// the path once, and again after the path could not be measured. The caller holds mu.
func (g *GC) usage(ctx context.Context) (Usage, error) {
	if g.path == "" {
		info, err := g.cfg.Images.ImageFsInfo(ctx)
		if err != nil {
			return Usage{}, err
		}
		if all := info.GetImageFilesystems(); len(all) > 0 {
			g.path = all[0].GetFsId().GetMountpoint() // as in the kubelet
		}
		if g.path == "" {
			return Usage{}, errors.New("get image filesystem: runtime reports none")
		}
	}
	u, err := g.cfg.Usage(g.path)
	if err != nil {
		path := g.path
		g.path = ""
		return Usage{}, fmt.Errorf("measure image filesystem at %q: %w", path, err)
	}
	u.Available = min(u.Available, u.Capacity)
	if u.Capacity <= 0 {
		err := fmt.Errorf("invalid capacity 0 on image filesystem at %q", g.path)
		g.cfg.Events.Warning(pod.Ref{}, eventInvalidCapacity, err.Error())
		return Usage{}, err
	}
	return u, nil
}
