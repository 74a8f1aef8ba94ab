package agent

import (
	"context"
	"errors"
	"time"

	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// layout is which of the node's file systems are one, and where those of
// images and of writable layers are to be measured; "" is on nodefs, and with
// the images.
type layout struct {
	kind               policy.Layout
	images, containers string
}

// kind is known once the runtime has told.
func (e *evictions) kind() (kind policy.Layout, ok bool) {
	l := e.fs.Load()
	if l == nil {
		return 0, false
	}
	return l.kind, true
}

// awaitLayout asks the runtime until it answers.
func (e *evictions) awaitLayout(ctx context.Context) (*layout, error) {
	for {
		l, err := e.askLayout(ctx)
		if err == nil {
			e.fs.Store(l)
			return l, nil
		}
		e.log.Debug("the runtime does not tell where images are", "error", err)
		timer := time.NewTimer(askNotReady)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// askLayout asks the runtime once. Devices are compared, and not mounts: a
// folder that is mounted elsewhere is on the same file system.
func (e *evictions) askLayout(ctx context.Context) (*layout, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	info, err := e.images.ImageFsInfo(ctx)
	if err != nil {
		return nil, err
	}
	of := func(path string, or diskusage.Space) diskusage.Space {
		if path == "" {
			return or
		}
		s, err := e.space(path)
		if err != nil {
			e.log.Warn("a file system of the runtime's cannot be measured, and is taken for the node's", "error", err)
			return or
		}
		return s
	}
	all := info.GetImageFilesystems()
	if len(all) == 0 || all[0].GetFsId().GetMountpoint() == "" {
		return nil, errors.New("the runtime names no file system of images")
	}
	imagePath, containerPath := all[0].GetFsId().GetMountpoint(), ""
	if layers := info.GetContainerFilesystems(); len(layers) > 0 {
		containerPath = layers[0].GetFsId().GetMountpoint()
	}
	nodeFs, err := e.space(e.config.Paths.Root)
	if err != nil {
		return nil, err
	}
	imageFs := of(imagePath, nodeFs)
	containerFs := of(containerPath, imageFs)
	l := &layout{kind: policy.LayoutOf(imageFs.Device != nodeFs.Device, containerFs.Device != imageFs.Device)}
	if imageFs.Device != nodeFs.Device {
		l.images = imagePath
	}
	if containerFs.Device != imageFs.Device {
		l.containers = containerPath
	}
	return l, nil
}
