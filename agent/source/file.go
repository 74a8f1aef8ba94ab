package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source/manifest"
	"github.com/tinylet/tinylet/agent/store/filewatch"
	"github.com/tinylet/tinylet/agent/wait"
)

// Timing of a File.
const (
	// settleTime is how long a file must stay unchanged before it is read. A
	// manifest takes effect about 100 ms after its last write, and a file that
	// is still being written is not read.
	settleTime = 50 * time.Millisecond
	// doubtTime is how long bad content must stay unchanged before it is
	// reported: a slow writer truncates a file first.
	doubtTime = 500 * time.Millisecond
	// settledAge is the age from which a file is read at start without waiting
	// for settleTime.
	settledAge = 2 * time.Second
	// startLimit is how long the first set waits for files that are being
	// written or cannot be read. For a directory that cannot be read it waits
	// without limit.
	startLimit = 10 * time.Second
	// retryTime is the delay before a failed read is retried. It doubles with
	// each failure, up to the rescan period.
	retryTime = 5 * time.Second
	// unwatchedRescan is the rescan period while inotify does not work.
	unwatchedRescan = 10 * time.Second
	// defaultRescan is the period of full scans without an inotify event, plus up to
	// 10% of jitter. They are a safety net for changes that inotify does not report
	// (network file systems, writes through a mapping, mounts). A scan calls stat on
	// each file.
	defaultRescan = 2 * time.Minute
)

// FileConfig configures a File. Path, NodeName, Log and Events are required.
type FileConfig struct {
	// Path is a directory of manifests, or one manifest. It need not exist yet.
	Path string
	// NodeName, in lower case, is appended to the pods' names.
	NodeName string
	Log      *slog.Logger
	Events   *event.Recorder
}

// File is the config source for the manifests of a directory or one file.
//
// In a directory, every regular file counts whose name does not begin with a
// dot, also through symbolic links. Subdirectories are not read. Deleting a
// file removes its pods, and so does deleting the directory. A file or
// directory that exists but cannot be read changes nothing.
//
// Of two files that define the same pod, the one that was there first takes
// precedence; at start, the one with the lower name.
type File struct {
	path   string
	cpath  filewatch.Path
	origin manifest.Origin
	rescan time.Duration
	log    *slog.Logger
	events *event.Recorder

	entries    []*entry // in order of appearance
	byName     map[string]*entry
	root       filewatch.Signature // of path at the last scan
	rootErr    string              // last reported error
	relist     bool                // the last scan was incomplete
	links      []string            // symbolic links to files, sorted
	watchError string              // why changes may be missed; "" if none is
	scans      uint64
	started    time.Time
	sent       bool // the first set was handed over
	partial    bool // the last set was partial; not true again after a complete set
	retries    int  // consecutive scans with a failure after the first set

	refused map[string]struct{} // conflicts already reported by an event
}

// NewFile validates the configuration and returns a File. It reads nothing.
func NewFile(config FileConfig) (*File, error) {
	if config.Path == "" || config.NodeName == "" || config.Log == nil || config.Events == nil {
		return nil, errors.New("file source: Path, NodeName, Log and Events are required")
	}
	if strings.IndexByte(config.Path, 0) >= 0 {
		return nil, fmt.Errorf("file source: path %q contains a zero byte", config.Path)
	}
	path, err := filepath.Abs(config.Path)
	if err != nil {
		return nil, fmt.Errorf("file source: resolve %q: %w", config.Path, err)
	}
	return &File{
		path:   path,
		cpath:  filewatch.NewPath(path),
		origin: manifest.Origin{Source: pod.SourceFile, NodeName: config.NodeName},
		rescan: defaultRescan,
		log:    config.Log,
		events: config.Events,
		byName: make(map[string]*entry),
	}, nil
}

// Run reads the manifests and hands their pods to set until ctx ends: first
// when it has read all of them, then whenever they change. It returns ctx's
// cause. set may block; changes in the meantime are handed over in one later
// set. At most one Run may be active at a time.
func (f *File) Run(ctx context.Context, set func(context.Context, PodSet)) error {
	f.started = time.Now()
	w := f.newWatch()
	defer w.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true // the timer fires within settleTime
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.Changed():
			if !soon {
				soon = true
				timer.Reset(settleTime)
			}
		case <-timer.C:
			result := f.scan(w)
			partial := f.hasUnread()
			if (result.changed || !f.sent || f.partial && !partial) && !f.delaysFirst(result) {
				f.sent = true
				f.setPartial(partial)
				set(ctx, PodSet{Pods: f.pods(), Partial: partial})
			}
			soon = result.unsettled
			timer.Reset(f.next(result))
		}
	}
}

// hasUnread reports whether some file has never been read completely, so that its
// running pods are unknown. Something that is not a file has no pods. Once all
// files were read, the pods of a new file cannot be running yet.
func (f *File) hasUnread() bool {
	return (!f.sent || f.partial) && slices.ContainsFunc(f.entries, func(e *entry) bool { return !e.whole })
}

// setPartial records whether the set is partial, and logs a change to partial.
func (f *File) setPartial(partial bool) {
	if partial && !f.partial {
		f.log.Warn("postpone pod cleanup: unreadable manifests", "path", f.path, "remedy", "correct or delete the unreadable manifests")
	}
	f.partial = partial
}

// delaysFirst reports whether the first set must be delayed: a file that cannot be
// read now may be the manifest of a running pod.
func (f *File) delaysFirst(result result) bool {
	if f.sent {
		return false
	}
	return result.failed || ((result.unsettled || result.retry) && time.Since(f.started) < startLimit)
}

// next returns the delay until the next scan.
func (f *File) next(result result) time.Duration {
	again := result.failed || result.retry
	if !again || !f.sent {
		f.retries = 0
	}
	rescan := f.rescan
	if !result.watched {
		rescan = min(unwatchedRescan, rescan)
	}
	switch {
	case result.unsettled:
		return settleTime
	case again:
		wait := min(retryTime<<f.retries, rescan)
		if wait < rescan {
			f.retries++
		}
		return wait
	default:
		return wait.Longer(rescan)
	}
}

// pods returns the pods of all files. Of two with the same name it returns the
// first and emits an event for the other.
func (f *File) pods() []*v1.Pod {
	var all []*v1.Pod
	names := make(map[string]*entry)
	refused := make(map[string]struct{})
	for _, e := range f.entries {
		for _, p := range e.pods {
			ref := pod.RefOf(p)
			other, taken := names[ref.FullName()]
			if !taken {
				names[ref.FullName()] = e
				all = append(all, p)
				continue
			}
			message := fmt.Sprintf("%s: duplicate pod name: %s takes precedence", e.path, other.path)
			key := ref.FullName() + " " + string(p.UID) + " " + message
			if _, old := f.refused[key]; !old {
				f.events.Warning(ref, ReasonDuplicatePod, message)
			}
			refused[key] = struct{}{}
		}
	}
	f.refused = refused
	return all
}
