package diskusage

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// image is the runtime's report about its image file system.
type image struct {
	asked  time.Time
	failed bool
	path   string // a path on the image file system
	at     time.Time
	used   *uint64 // bytes
	inodes *uint64
	system *system
}

// requestImageFs requests ImageFsInfo from the runtime, at most once per measurement.
// After an error of the runtime the last result stays.
func (m *Meter) requestImageFs(ctx context.Context) {
	i := &m.known.image
	if m.cfg.ImageFs == nil || !i.asked.Before(m.measuredAt) {
		return
	}
	i.asked = time.Now()
	limited, cancel := context.WithTimeout(ctx, m.cfg.RemoteTimeout)
	defer cancel()
	info, err := m.cfg.ImageFs(limited)
	if err == nil {
		err = m.setImages(ctx, info)
	}
	if err != nil && !i.failed && ctx.Err() == nil {
		m.cfg.Log.Warn("cannot get image file system", "error", err)
	}
	i.failed = err != nil
}

// setImages stores the runtime's result: of several file systems the first, as the
// kubelet does.
func (m *Meter) setImages(ctx context.Context, info *runtimeapi.ImageFsInfoResponse) error {
	all := info.GetImageFilesystems()
	if len(all) == 0 || all[0].GetFsId().GetMountpoint() == "" {
		return errors.New("runtime reports no image file system")
	}
	i, reported := &m.known.image, all[0]
	i.at, i.used, i.inodes = time.Unix(0, reported.GetTimestamp()), nil, nil
	if v := reported.GetUsedBytes(); v != nil {
		i.used = &v.Value
	}
	if v := reported.GetInodesUsed(); v != nil {
		i.inodes = &v.Value
	}
	path := reported.GetFsId().GetMountpoint()
	if path == i.path && i.system != nil {
		return nil
	}
	table, err := readMounts(m.mountinfo)
	if err != nil {
		return err
	}
	l := &measurement{Meter: m, table: table, roots: map[string]string{}, deadline: time.Now().Add(m.cfg.RemoteTimeout)}
	i.path, i.system = path, l.system(l.resolveRoot(path))
	if i.system.at.IsZero() {
		l.stat(ctx, i.system)
	}
	return nil
}
