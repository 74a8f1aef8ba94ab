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

	"github.com/tinylet/tinylet/agent/store/filewatch"
	"github.com/tinylet/tinylet/agent/store/secretfile"
	"github.com/tinylet/tinylet/agent/wait"
)

// Timing of a Folder.
const (
	// settleTime is how long a file must stay unchanged before it is read.
	settleTime = 50 * time.Millisecond
	// doubtTime is how long bad content must stay unchanged before it is
	// reported: a slow writer truncates a file first.
	doubtTime = 500 * time.Millisecond
	// rescan is the period of full scans without an inotify event. A scan calls stat
	// on each file.
	rescan = 2 * time.Minute
	// unwatchedRescan is the rescan period while inotify does not work.
	unwatchedRescan = 10 * time.Second
)

// Config configures a Folder. Path and Log are required.
type Config struct {
	// Path is the directory, such as /etc/kubernetes/objects. It need not exist
	// yet.
	Path string
	Log  *slog.Logger
	// Changed is called by Run for each object that was added, changed or
	// removed after the first scan, so that the pods that reference it can be
	// reconciled. kind is one of the Kind constants; namespace is empty for a
	// PersistentVolume and a RuntimeClass. Run blocks while Changed does. It
	// may be nil.
	Changed func(kind, namespace, name string)
	// Event emits an event about a problem with a file; nil logs it instead. It
	// must not call the Folder's methods.
	Event func(message string)
}

// Folder is a Reader of the YAML and JSON files in a directory.
//
// Every regular file counts whose name does not begin with a dot, also through
// symbolic links that stay within the directory. Subdirectories are not read. A
// file may have several documents. A file that cannot be read or has a bad
// object keeps its previous objects. Secrets of a file that users other than
// its owner can read are ignored. If two files define the same object, the one
// with the lower name takes precedence. The stringData of a Secret is merged into
// its data. Claims are not bound automatically: spec.volumeName must be set. Of a
// RuntimeClass only the handler is used. Overhead and scheduling, which an API
// server would copy into the pod, must be set in the manifest.
//
// Nothing is read before the first call or Run. While Run is active and inotify works, a call
// makes no system call unless something changed. Otherwise each call lists the directory and
// checks the signatures of the files.
type Folder struct {
	Getter

	config Config
	now    func() time.Time

	mu      sync.Mutex
	files   map[string]*file
	objects map[Key]Object
	// withheld maps the ignored Secrets that users other than the owner can
	// read to their files.
	withheld    map[Key]string
	scanned     bool   // the directory was listed once
	failed      error  // error of the last listing; nil after a success
	lastProblem string // last reported problem of the directory
	changed     []Key  // to be reported by Run

	watch   *filewatch.Watch
	watched bool          // Run is active, and watch reports changes
	warned  bool          // watch does not work, which was logged
	wake    chan struct{} // Run has changes to report
}

// NewFolder validates the configuration and returns a Folder. It reads nothing.
func NewFolder(config Config) (*Folder, error) {
	if config.Path == "" || config.Log == nil {
		return nil, errors.New("object folder: Path and Log are required")
	}
	if strings.IndexByte(config.Path, 0) >= 0 {
		return nil, fmt.Errorf("object folder: path %q contains a zero byte", config.Path)
	}
	path, err := filepath.Abs(config.Path)
	if err != nil {
		return nil, fmt.Errorf("object folder: resolve %q: %w", config.Path, err)
	}
	config.Path = path
	f := &Folder{
		config:  config,
		now:     time.Now,
		files:   make(map[string]*file),
		objects: make(map[Key]Object),
		watch:   filewatch.New(filewatch.Config{Events: filewatch.Writes | filewatch.Attributes}),
		wake:    make(chan struct{}, 1),
	}
	f.Getter = f.get
	return f, nil
}

// Token returns ErrNoServer.
func (f *Folder) Token(context.Context, *v1.Pod, string, time.Duration) (string, time.Time, error) {
	return "", time.Time{}, fmt.Errorf("a service account token %w", ErrNoServer)
}

// TrustBundle returns ErrNoServer.
func (f *Folder) TrustBundle(context.Context, *v1.ClusterTrustBundleProjection) (string, error) {
	return "", fmt.Errorf("a ClusterTrustBundle %w", ErrNoServer)
}

func (f *Folder) get(_ context.Context, k Key) (Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pending := f.watched && f.watch.Pending()
	if pending {
		f.take()
		wait.Notify(f.wake) // Run reports the changes, and scans again when they have settled
	}
	if !f.watched || pending || !f.scanned {
		f.scan()
	}
	if o := f.objects[k]; o != nil {
		return o, nil
	}
	if f.failed != nil { // it may exist
		return nil, fmt.Errorf("%s %q: %w", k.resource(), k.Name, f.failed)
	}
	if name, ok := f.withheld[k]; ok {
		return nil, fmt.Errorf("%s %q: %w: chmod 600 %s", k.resource(), k.Name, secretfile.ErrExposed, filepath.Join(f.config.Path, name))
	}
	return nil, NotFound(k)
}

// Run watches the directory and reports changes until ctx ends, and returns
// ctx's cause. At most one Run may be active at a time.
func (f *Folder) Run(ctx context.Context) error {
	defer f.unwatch()
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true // the timer fires within settleTime
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			var again time.Duration
			again, soon = f.round()
			timer.Reset(again)
			continue
		case <-f.watch.Changed():
		case <-f.wake:
		}
		if !soon {
			soon = true
			timer.Reset(settleTime)
		}
	}
}

// unwatch ends the watch. From then on the Folder's methods check the files
// themselves.
func (f *Folder) unwatch() {
	f.mu.Lock()
	f.watched = false
	f.mu.Unlock()
	f.watch.Close()
}

// take clears the changes that inotify reported, before a scan. The caller holds the
// lock.
func (f *Folder) take() {
	_, err := f.watch.Take()
	f.watched = err == nil
	if err != nil && !f.warned {
		f.config.Log.Warn("fall back to polling local objects", "path", f.config.Path, "error", err)
	}
	f.warned = err != nil
}

// round places the watches, scans the files, and reports the changes since the
// last round, including those that get found. It returns the delay
// until the next round, and whether that is within settleTime.
func (f *Folder) round() (again time.Duration, soon bool) {
	f.mu.Lock()
	_, _ = f.watch.Set(f.config.Path) // also finds mounts; take returns the error
	f.take()
	unsettled, watched, changed := f.scan(), f.watched, f.changed
	f.changed = nil
	f.mu.Unlock()
	if f.config.Changed != nil {
		for _, k := range changed {
			f.config.Changed(k.Kind, k.Namespace, k.Name)
		}
	}
	switch {
	case unsettled:
		return settleTime, true
	case !watched:
		return unwatchedRescan, false
	}
	return rescan, false
}

// report emits one event or log line.
func (f *Folder) report(message string) {
	const limit = 1000
	if len(message) > limit {
		message = strings.ToValidUTF8(message[:limit], "") + "..."
	}
	if f.config.Event != nil {
		f.config.Event(message)
		return
	}
	f.config.Log.Warn("local object file is faulty", "error", message)
}
