package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/source/objects"
)

// Input is the input of Setup in addition to the pod.
type Input struct {
	// Objects returns the objects that the volumes refer to.
	Objects objects.Reader
	// Field returns a field of the pod, such as "metadata.labels", in the form
	// in which the downward API writes it to a file.
	Field func(fieldPath string) (string, error)
	// Resource returns a request or limit of a container of the pod.
	Resource func(*v1.ResourceFieldSelector) (string, error)
}

// Result is the result of Setup, by the names of the volumes.
type Result struct {
	// Paths are the host paths of all volumes except image volumes.
	Paths map[string]string
	// ReadOnly has the volumes that containers must not write to.
	ReadOnly map[string]bool
	// Images are the image volumes, which the runtime pulls and mounts.
	Images map[string]*v1.ImageVolumeSource
	// Groups are the supplemental groups of the PersistentVolumes (annotation
	// pv.beta.kubernetes.io/gid).
	Groups []int64
	// Refresh is the time at which the caller must call Setup again to renew a token;
	// zero means never. The caller also calls Setup when an object changes.
	Refresh time.Time
}

// unsupported returns the error for a kind of volume that is not supported. kind is the
// name of the field, such as "nfs".
func unsupported(kind string) error {
	return fmt.Errorf("volumes of kind %s are not supported", kind)
}

// Setup creates the pod's volumes, or updates their content from the objects. It
// is idempotent, does not write files that are up to date, and keeps the files
// that containers wrote. If a volume fails, it continues with the others. The
// error then has the errors of all failed volumes, each with the volume's name and, if
// there is one, a remedy, and the Result is nil. If ctx ends between two volumes, Setup
// returns its cause.
func (v *Manager) Setup(ctx context.Context, p *v1.Pod, in Input) (*Result, error) {
	volumes := p.Spec.Volumes
	s := &setup{v: v, pod: p, in: in, uid: string(p.UID), result: &Result{
		Paths: make(map[string]string, len(volumes)), ReadOnly: make(map[string]bool), Images: make(map[string]*v1.ImageVolumeSource),
	}}
	defer s.close()
	var all error
	for i := range volumes {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		all = joinErrors(all, "; ", s.setUpVolume(ctx, &volumes[i]))
	}
	if all != nil {
		return nil, all
	}
	return s.result, nil
}

// joinErrors is errors.Join of two errors with another separator between their texts.
func joinErrors(all error, separator string, err error) error {
	if all == nil || err == nil {
		return cmp.Or(all, err)
	}
	return fmt.Errorf("%w%s%w", all, separator, err)
}

// setup is the state of one call of Setup.
type setup struct {
	v      *Manager
	pod    *v1.Pod
	uid    string
	in     Input
	pods   *os.Root // the parent of all pods' directories, opened on first use
	result *Result
	buffer []byte // for comparing files
	plugin string // of the current volume
}

func (s *setup) close() {
	if s.pods != nil {
		_ = s.pods.Close()
	}
}

func (s *setup) setUpVolume(ctx context.Context, volume *v1.Volume) error {
	_, twice := s.result.Paths[volume.Name]
	if _, image := s.result.Images[volume.Name]; twice || image {
		return fmt.Errorf("set up volume %q: duplicate volume name", volume.Name)
	}
	begun := time.Now()
	s.plugin = Plugin(&volume.VolumeSource)
	err := s.make(ctx, volume)
	if err == nil || ctx.Err() == nil {
		s.v.observe(s.plugin, time.Since(begun), err)
	}
	if err != nil {
		return fmt.Errorf("set up volume %q: %w", volume.Name, s.v.withRemedy(err))
	}
	return nil
}

func (s *setup) make(ctx context.Context, volume *v1.Volume) error {
	name := volume.Name
	var path string
	var err error
	readOnly := false
	switch source := &volume.VolumeSource; {
	case source.EmptyDir != nil:
		path, err = s.emptyDir(name, source.EmptyDir)
	case source.HostPath != nil:
		path, err = hostPath(source.HostPath)
	case source.ConfigMap != nil, source.Secret != nil, source.DownwardAPI != nil, source.Projected != nil:
		readOnly = true
		path, err = s.config(ctx, volume)
	case source.PersistentVolumeClaim != nil:
		readOnly = source.PersistentVolumeClaim.ReadOnly
		path, err = s.claim(ctx, source.PersistentVolumeClaim)
	case source.Image != nil:
		s.result.Images[name] = source.Image
		s.result.ReadOnly[name] = true
		return nil
	default: // without any field: of a kind that this version of the API does not know
		return unsupported(KindOf(source))
	}
	if err != nil {
		return err
	}
	s.result.Paths[name] = path
	if readOnly {
		s.result.ReadOnly[name] = true
	}
	return nil
}

// KindOf returns the JSON name of the first field that is set in a struct of
// pointers, such as v1.VolumeSource.
func KindOf[T any](source *T) string {
	value := reflect.ValueOf(source).Elem()
	for i := range value.NumField() {
		if value.Field(i).Kind() == reflect.Pointer && !value.Field(i).IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "unknown"
}

// dir creates the directory volumes/<plugin> of the pod. It returns the path of
// the volume in it, relative to the parent of all pods' directories.
func (s *setup) dir(plugin, name string) (string, error) {
	if err := errors.Join(checkComponent(s.uid), checkComponent(name)); err != nil {
		return "", err
	}
	if s.pods == nil {
		pods, err := s.v.pods()
		if err != nil {
			return "", err
		}
		s.pods = pods
	}
	parent := filepath.Join(s.uid, dirVolumes, plugin)
	if _, err := s.pods.Lstat(parent); err != nil {
		if err := s.pods.MkdirAll(parent, privateDirMode); err != nil {
			return "", fmt.Errorf("create directory: %w", err)
		}
	}
	return filepath.Join(parent, name), nil
}

// setMode sets the mode of a volume's directory. If the pod has an fsGroup, it first sets
// the group, and adds groupBits to the mode.
func (s *setup) setMode(rel string, mode, groupBits fs.FileMode) error {
	if group, ok := s.fsGroup(); ok {
		if err := s.pods.Lchown(rel, -1, group); err != nil {
			return err
		}
		mode |= groupBits
	}
	return s.pods.Chmod(rel, mode)
}

// path returns the host path of a path relative to the parent of all pods'
// directories.
func (s *setup) path(rel string) string { return filepath.Join(s.v.root, dirPods, rel) }

// fsGroup returns the pod's fsGroup, and whether it is set.
func (s *setup) fsGroup() (int, bool) {
	if c := s.pod.Spec.SecurityContext; c != nil && c.FSGroup != nil {
		return int(*c.FSGroup), true
	}
	return -1, false
}

// makeDir creates a directory if it is missing. The new directory has no permissions, and
// finish sets them as the last step. A directory without permissions is finished again,
// since the agent may have died in between. Other permissions that a container has set are
// kept.
func (s *setup) makeDir(rel string, finish func() error) error {
	if err := s.pods.Mkdir(rel, 0); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create directory: %w", err)
	}
	info, err := s.pods.Lstat(rel)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is a %s, not a directory: remove it", s.path(rel), fileTypeName(info.Mode()))
	}
	if info.Mode().Perm() == 0 {
		return finish()
	}
	return nil
}
