package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// maxEnvFile is the maximum size of a file with environment variables in bytes.
const maxEnvFile = 64 << 10

// ReadEnvFile reads a file that a container wrote into an emptyDir volume of
// the pod, for a fileKeyRef. It follows symbolic links as in the container, with
// the volume as their root. It returns an error if the file is not regular or is
// larger than 64 KiB. The error of a missing file wraps fs.ErrNotExist.
func (v *Manager) ReadEnvFile(p *v1.Pod, volume, path string) (data []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read file %q of volume %q: %w", path, volume, err)
		}
	}()
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if !hasEmptyDir(p, volume) {
		return nil, errors.New("pod has no emptyDir volume of this name")
	}
	dir, err := v.openVolume(string(p.UID), dirEmptyDir, volume)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	// Check the type before opening for reading: opening a device can have side
	// effects.
	found, err := openat2(dir, path, unix.O_PATH|unix.O_CLOEXEC, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, err
	}
	defer unix.Close(found)
	var st unix.Statx_t
	if err := unix.Statx(found, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("not a regular file")
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", found), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err == nil && len(data) > maxEnvFile {
		return nil, fmt.Errorf("larger than %d bytes", maxEnvFile)
	}
	return data, err
}

func hasEmptyDir(p *v1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool {
		return v.Name == name && v.EmptyDir != nil
	})
}

// openVolume opens the directory of a pod's volume.
func (v *Manager) openVolume(uid, plugin, name string) (int, error) {
	if err := errors.Join(checkComponent(uid), checkComponent(name)); err != nil {
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
