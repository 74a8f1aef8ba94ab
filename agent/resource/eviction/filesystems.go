package eviction

import (
	"context"
	"errors"
	"time"

	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
	"github.com/tinylet/tinylet/agent/wait"
)

// Timing of the requests for the runtime's file systems.
const (
	runtimeRetry   = 5 * time.Second
	runtimeTimeout = 10 * time.Second
)

// fileSystems is the arrangement of nodefs, imagefs and containerfs. images
// and containers are the paths at which imagefs and containerfs are measured; images is
// "" if imagefs is nodefs, and containers is "" if containerfs is imagefs.
type fileSystems struct {
	layout             policy.Layout
	images, containers string
}

// awaitFileSystems repeats findFileSystems until it succeeds.
func (m *Manager) awaitFileSystems(ctx context.Context) (*fileSystems, error) {
	for {
		fs, err := m.findFileSystems(ctx)
		if err == nil {
			m.fs.Store(fs)
			return fs, nil
		}
		m.Log.Debug("cannot find the runtime's file systems", "error", err)
		if !wait.Pause(ctx, runtimeRetry) {
			return nil, context.Cause(ctx)
		}
	}
}

// findFileSystems asks the runtime once. It compares devices and not mounts: a directory
// that is mounted elsewhere is on the same file system. A path of the runtime that cannot be
// measured counts as on its parent file system, until the agent restarts.
func (m *Manager) findFileSystems(ctx context.Context) (*fileSystems, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	info, err := m.ImageFsInfo(ctx)
	if err != nil {
		return nil, err
	}
	spaceOf := func(path string, parent diskusage.Space) diskusage.Space {
		if path == "" {
			return parent
		}
		s, err := m.Space(path)
		if err != nil {
			m.Log.Warn("cannot measure a file system of the runtime", "path", path, "assumed", "same as its parent file system", "error", err)
			return parent
		}
		return s
	}
	all := info.GetImageFilesystems()
	if len(all) == 0 || all[0].GetFsId().GetMountpoint() == "" {
		return nil, errors.New("the runtime reports no file system for images")
	}
	imagePath, containerPath := all[0].GetFsId().GetMountpoint(), ""
	if layers := info.GetContainerFilesystems(); len(layers) > 0 {
		containerPath = layers[0].GetFsId().GetMountpoint()
	}
	nodeFs, err := m.Space(m.RootDir)
	if err != nil {
		return nil, err
	}
	imageFs := spaceOf(imagePath, nodeFs)
	containerFs := spaceOf(containerPath, imageFs)
	fs := &fileSystems{layout: policy.LayoutOf(imageFs.Device != nodeFs.Device, containerFs.Device != imageFs.Device)}
	if imageFs.Device != nodeFs.Device {
		fs.images = imagePath
	}
	if containerFs.Device != imageFs.Device {
		fs.containers = containerPath
	}
	return fs, nil
}
