package diskusage

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// image is what the runtime says of its images.
type image struct {
	asked  time.Time
	failed bool
	path   string // on the file system that holds them
	at     time.Time
	used   *uint64 // bytes
	inodes *uint64
	system *system
}

// askImages asks the runtime, at most once for each look at everything. Where
// it fails the last answer stays.
func (m *Meter) askImages(ctx context.Context) {
	i := &m.known.image
	if m.cfg.ImageFs == nil || !i.asked.Before(m.begun) {
		return
	}
	i.asked = time.Now()
	limited, cancel := context.WithTimeout(ctx, m.cfg.Patience)
	defer cancel()
	info, err := m.cfg.ImageFs(limited)
	if err == nil {
		err = m.setImages(ctx, info)
	}
	if err != nil && !i.failed && ctx.Err() == nil {
		m.cfg.Log.Warn("the file system of images is not known", "error", err)
	}
	i.failed = err != nil
}

// setImages takes the runtime's answer: of several file systems the first, as
// the kubelet does.
func (m *Meter) setImages(ctx context.Context, info *runtimeapi.ImageFsInfoResponse) error {
	all := info.GetImageFilesystems()
	if len(all) == 0 || all[0].GetFsId().GetMountpoint() == "" {
		return errors.New("the runtime names none")
	}
	i, told := &m.known.image, all[0]
	i.at, i.used, i.inodes = time.Unix(0, told.GetTimestamp()), nil, nil
	if v := told.GetUsedBytes(); v != nil {
		i.used = &v.Value
	}
	if v := told.GetInodesUsed(); v != nil {
		i.inodes = &v.Value
	}
	path := told.GetFsId().GetMountpoint()
	if path == i.path && i.system != nil {
		return nil
	}
	table, err := readMounts(m.mountinfo)
	if err != nil {
		return err
	}
	l := &look{Meter: m, table: table, roots: map[string]string{}, patient: time.Now().Add(m.cfg.Patience)}
	i.path, i.system = path, l.system(l.real(path))
	if i.system.at.IsZero() {
		l.stat(ctx, i.system)
	}
	return nil
}
