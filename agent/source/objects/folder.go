package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// Times of a Folder.
const (
	// settleTime is how long a file must stay as it is before it counts.
	settleTime = 50 * time.Millisecond
	// doubtTime is how long bad content must stay as it is before it is told:
	// a slow writer empties a file first.
	doubtTime = 500 * time.Millisecond
	// defaultRescan is the rescan where the configuration says nothing.
	defaultRescan = 2 * time.Minute
	// unwatchedRescan is the rescan while inotify does not work.
	unwatchedRescan = 10 * time.Second
)

// Config is what a Folder needs.
type Config struct {
	// Path is the folder, such as /etc/kubernetes/objects. It may not exist
	// yet.
	Path string
	Log  *slog.Logger
	// Changed is told by Run of each object that came, changed or went after
	// the first look: the pods that refer to it are to be looked at again.
	// kind is one of the Kind constants; namespace is empty for a
	// PersistentVolume and a RuntimeClass. While it blocks, Run does. nil is nobody.
	Changed func(kind, namespace, name string)
	// Event makes an event of what is wrong with a file; nil logs it instead.
	// It must not call the Folder's methods.
	Event func(message string)
	// Rescan is how often everything is looked at without an event of inotify;
	// zero means 2 min. It costs a stat of each file.
	Rescan time.Duration
}

// Folder is the Reader of a folder of YAML and JSON files.
//
// Every regular file counts whose name does not begin with a dot, also
// through symbolic links that do not lead out of the folder; sub-folders do
// not. A file may have several documents. A file that cannot be read or has a
// bad object leaves what it gave before. Secrets of a file that users other
// than its owner may read are not used. Of two files that have the same
// object, that of the lower name counts.
//
// Nothing is read before the first call. While Run runs, a call costs no
// system call unless something changed; without it each call looks at the
// files' signatures.
type Folder struct {
	config Config
	now    func() time.Time

	mu      sync.Mutex
	files   map[string]*file
	order   []string // names of files, sorted
	objects map[key]any
	// withheld has the files of Secrets that users other than the owner may
	// read, and that are not used for it.
	withheld map[key]string
	looked   bool   // the folder was listed once
	failed   error  // of listing it, while it fails
	told     string // about the folder
	changed  []key  // to be told by Run

	watched bool // by Run: inotify tells of changes
	dirty   bool // it did
	wake    chan struct{}
}

// NewFolder checks the configuration; it reads nothing.
func NewFolder(config Config) (*Folder, error) {
	if config.Path == "" || config.Log == nil {
		return nil, errors.New("object folder: path and log are required")
	}
	if strings.IndexByte(config.Path, 0) >= 0 {
		return nil, fmt.Errorf("object folder: the path %q has a zero byte", config.Path)
	}
	path, err := filepath.Abs(config.Path)
	if err != nil {
		return nil, fmt.Errorf("object folder: resolve %q: %w", config.Path, err)
	}
	config.Path = path
	if config.Rescan <= 0 {
		config.Rescan = defaultRescan
	}
	return &Folder{
		config:  config,
		now:     time.Now,
		files:   make(map[string]*file),
		objects: make(map[key]any),
		wake:    make(chan struct{}, 1),
	}, nil
}

// ConfigMap answers a ConfigMap of the files.
func (f *Folder) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return get[*v1.ConfigMap](f, key{KindConfigMap, namespace, name})
}

// Secret answers a Secret of the files, its stringData being in data.
func (f *Folder) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return get[*v1.Secret](f, key{KindSecret, namespace, name})
}

// PersistentVolumeClaim answers a claim of the files. Nobody binds it: its
// spec.volumeName has to be written out.
func (f *Folder) PersistentVolumeClaim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return get[*v1.PersistentVolumeClaim](f, key{KindClaim, namespace, name})
}

// PersistentVolume answers a PersistentVolume of the files.
func (f *Folder) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return get[*v1.PersistentVolume](f, key{KindVolume, "", name})
}

// RuntimeClass answers a RuntimeClass of the files. Of it the handler counts;
// what an API server would put into the pod for it, overhead and where it is
// scheduled, a manifest has to say itself.
func (f *Folder) RuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	return get[*nodev1.RuntimeClass](f, key{KindClass, "", name})
}

// Token is ErrNoServer.
func (f *Folder) Token(context.Context, *v1.Pod, string, time.Duration) (string, time.Time, error) {
	return "", time.Time{}, fmt.Errorf("a service account token %w", ErrNoServer)
}

// TrustBundle is ErrNoServer.
func (f *Folder) TrustBundle(context.Context, *v1.ClusterTrustBundleProjection) (string, error) {
	return "", fmt.Errorf("a ClusterTrustBundle %w", ErrNoServer)
}

func get[T any](f *Folder, k key) (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.watched || f.dirty || !f.looked {
		f.look()
	}
	if o, ok := f.objects[k].(T); ok {
		return o, nil
	}
	var none T
	if f.failed != nil { // it may be there
		return none, fmt.Errorf("%s %q: %w", resources[k.kind], k.name, f.failed)
	}
	if name, ok := f.withheld[k]; ok {
		return none, fmt.Errorf("%s %q: %w: chmod 600 %s", resources[k.kind], k.name, secretfile.ErrExposed, filepath.Join(f.config.Path, name))
	}
	return none, notFound(k)
}

// Run watches the folder and tells of changes until ctx ends; its error is
// ctx's cause. Only one Run goes on at a time.
func (f *Folder) Run(ctx context.Context) error {
	w := newWatch(f)
	defer w.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true // the timer ends in settleTime at most
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.wake:
			if !soon {
				soon = true
				timer.Reset(settleTime)
			}
		case <-timer.C:
			var again time.Duration
			again, soon = f.round(w)
			timer.Reset(again)
		}
	}
}

// round puts the watches in place, looks, and tells of what changed since the
// last time, also where a Reader's call saw it. It answers when to look again.
func (f *Folder) round(w *watch) (again time.Duration, soon bool) {
	watched := w.place()
	f.mu.Lock()
	f.watched = watched
	unsettled := f.look()
	changed := f.changed
	f.changed = nil
	f.mu.Unlock()
	if f.config.Changed != nil {
		for _, k := range changed {
			f.config.Changed(k.kind, k.namespace, k.name)
		}
	}
	switch {
	case unsettled:
		return settleTime, true
	case !watched:
		return min(unwatchedRescan, f.config.Rescan), false
	}
	return f.config.Rescan, false
}

// noted wakes Run; the caller holds the lock.
func (f *Folder) noted() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// tell makes one event or log line.
func (f *Folder) tell(message string) {
	const limit = 1000
	if len(message) > limit {
		message = strings.ToValidUTF8(message[:limit], "") + "..."
	}
	if f.config.Event != nil {
		f.config.Event(message)
		return
	}
	f.config.Log.Warn("local object file", "problem", message)
}
