package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Teardown unmounts everything in the pod's directory and deletes the directory,
// except for foreign volumes. These stay with the directories above them and are
// no error; Foreign lists them. Teardown is idempotent and needs no Setup before
// it. It does not change the content of hostPath and local volumes. If a part fails, it
// deletes the rest and returns the error; the caller tries again. It stops when
// ctx ends. It waits at most 10 s for the unmount of each NFS volume.
func (v *Manager) Teardown(ctx context.Context, uid types.UID) error {
	if err := v.teardown(ctx, string(uid)); err != nil {
		return fmt.Errorf("tear down directory of pod %q: %w", uid, v.withRemedy(err))
	}
	return nil
}

// Release unmounts everything in the directory of a pod that has ended, and deletes its
// volumes and subPath mount points. The other files, such as the termination messages,
// remain until Teardown. Otherwise it behaves like Teardown.
func (v *Manager) Release(ctx context.Context, uid types.UID) error {
	if err := v.teardown(ctx, string(uid), dirSubPaths, dirVolumes); err != nil {
		return fmt.Errorf("release volumes of pod %q: %w", uid, v.withRemedy(err))
	}
	return nil
}

// teardown unmounts everything in the pod's directory and deletes the directory,
// or only the given directories in it. Foreign volumes stay.
func (v *Manager) teardown(ctx context.Context, uid string, only ...string) error {
	if err := checkComponent(uid); err != nil {
		return err
	}
	dir, err := inMountTable("", filepath.Join(v.root, dirPods))
	if err != nil || dir == "" {
		return err
	}
	pods, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer pods.Close()
	unmounted := v.unmountBelow(ctx, dir, uid)
	foreign, err := v.Foreign(types.UID(uid))
	if err != nil {
		return errors.Join(unmounted, err)
	}
	if len(foreign) == 0 && len(only) == 0 {
		return errors.Join(unmounted, removeTree(ctx, pods, uid))
	}
	fd, err := unix.Openat(int(pods.Fd()), uid, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return unmounted
	}
	if err != nil {
		return errors.Join(unmounted, err)
	}
	own := os.NewFile(uintptr(fd), uid)
	defer own.Close()
	return errors.Join(unmounted, removeExcept(ctx, own, keepTreeOf(foreign), only...))
}

// unmountBelow unmounts the mounts in a pod's directory, the last one first. It
// repeats until none is left, because one mount may hide another. Foreign mounts
// stay.
func (v *Manager) unmountBelow(ctx context.Context, pods, uid string) error {
	busy := make(map[string]bool) // NFS mounts that cannot be unmounted now
	for {
		mounts, err := v.ownMounts(pods, uid, busy)
		if err != nil {
			return err
		}
		if len(mounts) == 0 {
			return nil
		}
		var errs []error
		for _, m := range slices.Backward(mounts) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			err := v.unmountOne(m)
			switch {
			case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // already unmounted
			case m.neverDetach:
				busy[m.Mountpoint] = true
			case errors.Is(err, unix.EBUSY):
				errs = append(errs, fmt.Errorf("unmount %s: %w: in use by a process", m.Mountpoint, err))
			default:
				errs = append(errs, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
			}
		}
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
		after, err := v.ownMounts(pods, uid, busy)
		if err != nil {
			return err
		}
		if len(after) > 0 && len(after) >= len(mounts) {
			return fmt.Errorf("unmount %s: still mounted", after[0].Mountpoint)
		}
	}
}

// ownMount is a mount that has to be unmounted. neverDetach is set for NFS mounts: these
// are not detached while they are in use.
type ownMount struct {
	*mountinfo.Info
	neverDetach bool
}

// ownMounts returns the mounts in a pod's directory that may be unmounted, in the
// order of mounting: those of this agent, and the NFS mounts not in busy.
func (v *Manager) ownMounts(pods, uid string, busy map[string]bool) ([]ownMount, error) {
	mounts, err := v.mountsBelow(filepath.Join(pods, uid))
	if err != nil || len(mounts) == 0 {
		return nil, err
	}
	foreign, err := v.Foreign(types.UID(uid))
	if err != nil {
		return nil, err
	}
	var kept, plain []string
	for i := range foreign {
		for _, rel := range foreign[i].keepPaths {
			path := filepath.Join(pods, uid, rel)
			if foreign[i].Plugin == dirNFS {
				plain = append(plain, path)
			} else {
				kept = append(kept, path)
			}
		}
	}
	for path := range busy {
		kept = append(kept, path)
	}
	var out []ownMount
	for _, m := range mounts {
		// Detaching a mount also detaches the mounts below it.
		if slices.ContainsFunc(kept, func(path string) bool { return within(m.Mountpoint, path) || within(path, m.Mountpoint) }) {
			continue
		}
		out = append(out, ownMount{m, slices.ContainsFunc(plain, func(path string) bool { return within(m.Mountpoint, path) })})
	}
	return out, nil
}

// UnmountIdle unmounts the unused NFS volumes of pods that have only foreign volumes left.
// It waits at most wait for each volume; the unmount continues after that. It returns no
// error: AllForeign lists the volumes that remain.
func (v *Manager) UnmountIdle(wait time.Duration) {
	s, _ := newForeignScan("", v.root, v.mountinfo)
	names, _ := s.podNames() // Orphans returns the same errors
	for _, name := range names {
		if !s.onlyForeignLeft(name) {
			continue
		}
		mounts, err := v.ownMounts(s.podsMountPath, name, nil)
		if err != nil {
			continue
		}
		for _, m := range slices.Backward(mounts) {
			if m.neverDetach {
				_ = v.unmountWithTimeout(m.Mountpoint, wait) // stays mounted while in use
			}
		}
	}
}

// serverTimeout is the timeout for the server of a network volume during teardown.
const serverTimeout = 10 * time.Second

// unmountWithTimeout unmounts a network volume unless it is in use. If the system
// call takes longer than wait, it returns an error and the call continues; no second
// call is made for the path until it returns.
func (v *Manager) unmountWithTimeout(path string, wait time.Duration) error {
	var err error
	if !v.unmounting.Do(context.Background(), path, wait, func() { err = v.unmount(path, unix.UMOUNT_NOFOLLOW) }) {
		return errors.New("server does not respond")
	}
	return err
}

// unmountOne unmounts one mount. If a bind mount is busy, it detaches the mount
// (MNT_DETACH). It does not detach a busy mount that holds data in memory, but
// returns EBUSY: its memory is freed only when its last user ends, and the caller
// has to know that.
func (v *Manager) unmountOne(m ownMount) error {
	if m.neverDetach {
		return v.unmountWithTimeout(m.Mountpoint, v.serverTimeout)
	}
	holdsData := m.FSType == "tmpfs" || m.FSType == "hugetlbfs"
	if holdsData && !strings.Contains(m.Mountpoint, "/"+dirSubPaths+"/") {
		return v.unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW)
	}
	return v.unmountOrDetach(m.Mountpoint)
}

// unmountOrDetach unmounts a bind mount, and detaches it if it is busy.
func (v *Manager) unmountOrDetach(path string) error {
	err := v.unmount(path, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = v.unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	return err
}
