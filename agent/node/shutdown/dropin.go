package shutdown

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
)

// Folders of logind's configuration (logind.conf(5)), the persistent one and the
// one for this boot, and the file name that the kubelet uses there.
const (
	logindFolder    = "etc/systemd/logind.conf.d"
	logindRunFolder = "run/systemd/logind.conf.d"
	logindFile      = "99-kubelet.conf"
)

// writeDropIn writes the delay for logind into the first writable folder. The root
// file system of a board is often read-only.
func writeDropIn(folders []string, wait time.Duration) error {
	text := fmt.Sprintf("# Time for pods to terminate before the machine goes down.\n[Login]\nInhibitDelayMaxSec=%.0f\n", math.Ceil(wait.Seconds()))
	var errs []error
	for _, folder := range folders {
		err := replace(folder, logindFile, text)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("write %s: %w", filepath.Join(folder, logindFile), err))
	}
	return errors.Join(errs...)
}

// replace atomically writes text to a file unless it has that text already.
func replace(folder, name, text string) error {
	path := filepath.Join(folder, name)
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, "."+name+"-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(folder)
}

func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
