package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// hostPath checks that the path is what its type says, and makes it where
// the type says that too (pkg/volume/hostpath). Symbolic links are followed:
// the path is the operator's.
func hostPath(source *v1.HostPathVolumeSource) (string, error) {
	path := source.Path
	if !filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") {
		return "", fmt.Errorf("hostPath.path %q must be absolute and without ..", path)
	}
	want := v1.HostPathUnset
	if source.Type != nil {
		want = *source.Type
	}
	switch want {
	case v1.HostPathUnset:
		return path, nil
	case v1.HostPathDirectoryOrCreate:
		if err := makeIfMissing(path, func() error { return os.MkdirAll(path, 0o755) }); err != nil {
			return "", err
		}
	case v1.HostPathFileOrCreate:
		if err := makeIfMissing(path, func() error { return makeFile(path, 0o644) }); err != nil {
			return "", err
		}
	}
	return path, checkType(path, want)
}

func checkType(path string, want v1.HostPathType) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("hostPath.type is %s: %w", want, err)
	}
	mode := info.Mode()
	ok := false
	switch want {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		ok = mode.IsDir()
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		ok = mode.IsRegular()
	case v1.HostPathSocket:
		ok = mode.Type() == fs.ModeSocket
	case v1.HostPathCharDev:
		ok = mode.Type() == fs.ModeDevice|fs.ModeCharDevice
	case v1.HostPathBlockDev:
		ok = mode.Type() == fs.ModeDevice
	default:
		return fmt.Errorf("hostPath.type %q is not known", want)
	}
	if !ok {
		return fmt.Errorf("hostPath.type is %s, but %s is a %s", want, path, kind(mode))
	}
	return nil
}

func makeIfMissing(path string, make func() error) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = make()
	}
	if err != nil {
		return fmt.Errorf("make hostPath: %w", err)
	}
	return nil
}

// makeFile makes an empty file where there is nothing at all.
func makeFile(path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return f.Close()
}

// kind names a file's type for people.
func kind(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symbolic link"
	case fs.ModeSocket:
		return "socket"
	case fs.ModeNamedPipe:
		return "named pipe"
	case fs.ModeDevice | fs.ModeCharDevice:
		return "character device"
	case fs.ModeDevice:
		return "block device"
	}
	return "special file"
}
