package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// messageMode allows every user in a container to write its termination message.
const messageMode fs.FileMode = 0o666

// TerminationMessage creates an empty file for one start of a container, which is
// mounted at its terminationMessagePath, and returns its path. Each call creates
// another file. RemoveTerminationMessages and Teardown delete them.
func (v *Manager) TerminationMessage(uid types.UID, container string) (path string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("create termination message file of container %q: %w", container, v.withRemedy(err))
		}
	}()
	if err := errors.Join(checkComponent(string(uid)), checkComponent(container)); err != nil {
		return "", err
	}
	pods, err := v.pods()
	if err != nil {
		return "", err
	}
	defer pods.Close()
	dir := filepath.Join(string(uid), dirContainers, container)
	if err := pods.MkdirAll(dir, privateDirMode); err != nil {
		return "", err
	}
	for {
		rel := filepath.Join(dir, fmt.Sprintf("%08x", rand.Uint32()))
		f, err := pods.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, messageMode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		// Unlike OpenFile, Chmod ignores the umask.
		if err := errors.Join(f.Chmod(messageMode), f.Close()); err != nil {
			return "", err
		}
		return filepath.Join(v.root, dirPods, rel), nil
	}
}

// RemoveTerminationMessages deletes the termination messages of a container for whose paths
// unused returns true. Otherwise a crash loop would leave a file for each start.
func (v *Manager) RemoveTerminationMessages(uid types.UID, container string, unused func(path string) bool) error {
	if err := errors.Join(checkComponent(string(uid)), checkComponent(container)); err != nil {
		return err
	}
	dir := filepath.Join(v.root, dirPods, string(uid), dirContainers, container)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() || !unused(path) {
			continue
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("delete termination messages of container %q: %w", container, err)
	}
	return nil
}

// WriteHosts writes the pod's /etc/hosts, which is mounted in its containers, and
// returns its path. It writes in place, so that running containers see the new
// content. It does not write if the content is equal.
func (v *Manager) WriteHosts(uid types.UID, content []byte) (path string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write hosts file: %w", v.withRemedy(err))
		}
	}()
	if err := checkComponent(string(uid)); err != nil {
		return "", err
	}
	pods, err := v.pods()
	if err != nil {
		return "", err
	}
	defer pods.Close()
	if err := pods.MkdirAll(string(uid), privateDirMode); err != nil {
		return "", err
	}
	rel := filepath.Join(string(uid), fileHosts)
	f, err := pods.OpenFile(rel, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// Containers may write to it: read no more than the comparison needs.
	old, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	if err != nil {
		return "", err
	}
	path = filepath.Join(v.root, dirPods, rel)
	if bytes.Equal(old, content) && len(content) > 0 {
		return path, nil
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return "", err
	}
	return path, errors.Join(f.Truncate(int64(len(content))), f.Chmod(0o644))
}
