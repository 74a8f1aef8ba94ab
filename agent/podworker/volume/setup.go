package volume

import (
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
)

// Objects answers what volumes refer to, as object.Reader has it.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	Token(ctx context.Context, p *v1.Pod, audience string, expiration time.Duration) (token string, expires time.Time, err error)
	TrustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) (pem string, err error)
}

// Input is what volumes are made of beside the pod.
type Input struct {
	// Objects is an object.Reader. A pod whose volumes refer to nothing needs
	// none.
	Objects Objects
	// Field answers a field of the pod, such as "metadata.labels", as the
	// downward API writes it to a file.
	Field func(fieldPath string) (string, error)
	// Resource answers a request or limit of a container of the pod.
	Resource func(*v1.ResourceFieldSelector) (string, error)
}

// Result is what Setup made, by the volumes' names.
type Result struct {
	// Paths are the volumes' host paths. Those of image volumes are absent.
	Paths map[string]string
	// ReadOnly are the volumes that containers must not write.
	ReadOnly map[string]bool
	// Images are the image volumes, which the runtime pulls and mounts.
	Images map[string]*v1.ImageVolumeSource
	// Groups are the supplemental groups that the PersistentVolumes ask for
	// (annotation pv.beta.kubernetes.io/gid).
	Groups []int64
	// Refresh is when Setup is to be called again because a token gets old;
	// zero is never. Changes of objects are the caller's to notice.
	Refresh time.Time
}

// Unsupported says that a volume is of a kind that is not built.
type Unsupported struct {
	// Kind is the name of the field, such as "nfs".
	Kind string
}

func (e *Unsupported) Error() string {
	return fmt.Sprintf("volumes of kind %s are not supported", e.Kind)
}

// Setup makes the pod's volumes, or brings their content up to what the
// objects say now. It is idempotent, writes nothing that is there already,
// and keeps what containers wrote. It goes through all volumes, whatever
// becomes of one, and its error has those of all that cannot be had, each
// naming the volume and, where there is one, the remedy; there is a Result
// only without an error. errors.As finds an *Unsupported in it.
func (v *Volumes) Setup(ctx context.Context, p *v1.Pod, in Input) (*Result, error) {
	volumes := p.Spec.Volumes
	s := &setup{v: v, pod: p, in: in, uid: string(p.UID), result: &Result{Paths: make(map[string]string, len(volumes))}}
	defer s.close()
	var all error
	for i := range volumes {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		err := s.one(ctx, &volumes[i])
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	if all != nil {
		return nil, all
	}
	return s.result, nil
}

// setup is one call of Setup.
type setup struct {
	v      *Volumes
	pod    *v1.Pod
	uid    string
	in     Input
	pods   *os.Root // the directory of all pods, once it is needed
	result *Result
	buffer []byte // for comparing files
	plugin string // of the volume that is being set up
}

func (s *setup) close() {
	if s.pods != nil {
		_ = s.pods.Close()
	}
}

func (s *setup) one(ctx context.Context, volume *v1.Volume) error {
	_, twice := s.result.Paths[volume.Name]
	if _, image := s.result.Images[volume.Name]; twice || image {
		return fmt.Errorf("set up volume %q: the pod has two of that name", volume.Name)
	}
	begun := time.Now()
	s.plugin = Plugin(&volume.VolumeSource)
	err := s.make(ctx, volume)
	if err == nil || ctx.Err() == nil {
		s.v.observe(s.plugin, time.Since(begun), err)
	}
	if err != nil {
		return fmt.Errorf("set up volume %q: %w", volume.Name, s.v.advise(err))
	}
	return nil
}

func (s *setup) make(ctx context.Context, volume *v1.Volume) error {
	name := volume.Name
	switch source := &volume.VolumeSource; {
	case source.EmptyDir != nil:
		return s.at(s.emptyDir(name, source.EmptyDir))(name, false)
	case source.HostPath != nil:
		return s.at(hostPath(source.HostPath))(name, false)
	case source.ConfigMap != nil, source.Secret != nil, source.DownwardAPI != nil, source.Projected != nil:
		return s.at(s.config(ctx, volume))(name, true)
	case source.PersistentVolumeClaim != nil:
		return s.claim(ctx, name, source.PersistentVolumeClaim)
	case source.Image != nil:
		if s.result.Images == nil {
			s.result.Images = make(map[string]*v1.ImageVolumeSource)
		}
		s.result.Images[name] = source.Image
		s.readOnly(name)
		return nil
	case *source == v1.VolumeSource{}: // by the API's defaults an emptyDir
		return s.at(s.emptyDir(name, &v1.EmptyDirVolumeSource{}))(name, false)
	default:
		return &Unsupported{Kind: kindOf(source)}
	}
}

// at notes where a volume is, unless it failed.
func (s *setup) at(path string, err error) func(name string, readOnly bool) error {
	return func(name string, readOnly bool) error {
		if err != nil {
			return err
		}
		s.result.Paths[name] = path
		if readOnly {
			s.readOnly(name)
		}
		return nil
	}
}

func (s *setup) readOnly(name string) {
	if s.result.ReadOnly == nil {
		s.result.ReadOnly = make(map[string]bool)
	}
	s.result.ReadOnly[name] = true
}

// kindOf is the name of the first field of a struct of pointers that is set.
func kindOf[T any](source *T) string {
	value := reflect.ValueOf(source).Elem()
	for i := range value.NumField() {
		if value.Field(i).Kind() == reflect.Pointer && !value.Field(i).IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "unknown"
}

// dir makes the directory volumes/<plugin> of the pod and answers the path of
// the volume in it, below the directory of all pods.
func (s *setup) dir(plugin, name string) (string, error) {
	if err := errors.Join(component(s.uid), component(name)); err != nil {
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
		if err := s.pods.MkdirAll(parent, private); err != nil {
			return "", fmt.Errorf("make directory: %w", err)
		}
	}
	return filepath.Join(parent, name), nil
}

// path is the host path of a path below the directory of all pods.
func (s *setup) path(rel string) string { return filepath.Join(s.v.root, dirPods, rel) }

// fsGroup is the group that the pod's volumes belong to, and whether there is
// one.
func (s *setup) fsGroup() (int, bool) {
	if c := s.pod.Spec.SecurityContext; c != nil && c.FSGroup != nil {
		return int(*c.FSGroup), true
	}
	return -1, false
}

// makeDir makes a directory once. It is born without permissions, so that one
// whose making was cut off between two steps is known by that; finish gives it
// them as the last step. One that a container has given other permissions
// keeps them.
func (s *setup) makeDir(rel string, finish func() error) error {
	if err := s.pods.Mkdir(rel, 0); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	info, err := s.pods.Lstat(rel)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is a %s, not a directory: remove it", s.path(rel), kind(info.Mode()))
	}
	if info.Mode().Perm() == 0 {
		return finish()
	}
	return nil
}
