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
)

// Times of a File.
const (
	// settleTime is how long a file must stay as it is before it is read:
	// a manifest acts about 100 ms after its writer is done with it, and one
	// that is still being written is not read at all.
	settleTime = 50 * time.Millisecond
	// doubtTime is how long bad content must stay as it is before it counts:
	// a slow writer empties a file first.
	doubtTime = 500 * time.Millisecond
	// settledAge is the age from which a file is not waited for at start.
	settledAge = 2 * time.Second
	// startLimit is how long the first set waits for files that are being
	// written or cannot be read just now.
	startLimit = 10 * time.Second
	// retryTime is when what could not be read is tried again; after each
	// time in vain it is twice as long, up to that of a rescan.
	retryTime = 5 * time.Second
	// unwatchedRescan is the rescan while inotify does not work.
	unwatchedRescan = 10 * time.Second
	// defaultRescan is the rescan where the configuration says nothing.
	defaultRescan = 2 * time.Minute
)

// FileConfig is what a File needs.
type FileConfig struct {
	// Path is a folder of manifests, or one manifest. It may not exist yet.
	Path string
	// NodeName ends the pods' names.
	NodeName string
	// Rescan is how often everything is looked at without an event, with up
	// to a tenth of jitter; zero means 2 min. It is a safety net for what
	// inotify does not see (network file systems, writes through a mapping,
	// what a symbolic link names): all else acts by inotify. One rescan is a
	// stat of each file.
	Rescan time.Duration
	Log    *slog.Logger
	Events *event.Recorder
}

// File is the source of a folder's or a file's manifests.
//
// In a folder, every regular file counts whose name does not begin with a
// dot, also through symbolic links; sub-folders do not. A deleted file takes
// its pods with it, and so does a folder that is gone; a file or folder that
// is there and cannot be read changes nothing.
//
// Of two files that name the same pod the one that was there first counts;
// at start, that of the lower name.
type File struct {
	path   string
	cpath  cpath
	origin manifest.Origin
	rescan time.Duration
	log    *slog.Logger
	events *event.Recorder

	entries []*entry // in the order of their appearance
	byName  map[string]*entry
	root    signature // of path at the last look
	rootErr string    // told last
	relist  bool      // the last look left something open
	looks   uint64
	started time.Time
	sent    bool // the first set is out
	partial bool // the last set was; once it is not, it stays so
	retries int  // in a row since then

	refused map[string]struct{} // refusals that had their event
}

// NewFile checks the configuration and makes the source; it reads nothing.
func NewFile(config FileConfig) (*File, error) {
	if config.Path == "" || config.NodeName == "" || config.Log == nil || config.Events == nil {
		return nil, errors.New("file source: path, node name, log and events are required")
	}
	if strings.IndexByte(config.Path, 0) >= 0 {
		return nil, fmt.Errorf("file source: the path %q has a zero byte", config.Path)
	}
	path, err := filepath.Abs(config.Path)
	if err != nil {
		return nil, fmt.Errorf("file source: resolve %q: %w", config.Path, err)
	}
	if config.Rescan <= 0 {
		config.Rescan = defaultRescan
	}
	return &File{
		path:   path,
		cpath:  newCPath(path),
		origin: manifest.Origin{Source: pod.SourceFile, NodeName: config.NodeName},
		rescan: config.Rescan,
		log:    config.Log,
		events: config.Events,
		byName: make(map[string]*entry),
	}, nil
}

// Run reads the manifests and hands their pods to set, first when it has
// read them all, then whenever they change, until ctx ends; its error is
// ctx's cause. set may block; what changes meanwhile comes in one later set.
// Only one Run goes on at a time.
func (f *File) Run(ctx context.Context, set func(context.Context, Wanted)) error {
	f.started = time.Now()
	w := newWatcher(f.path, f.log)
	defer w.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true // the timer ends in settleTime at most
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.wake:
			if !soon {
				soon = true
				timer.Reset(settleTime)
			}
		case <-timer.C:
			result := f.look(w)
			partial := f.unread()
			if (result.changed || !f.sent || f.partial && !partial) && !f.waits(result) {
				f.sent = true
				f.hold(partial)
				set(ctx, Wanted{Pods: f.pods(), Partial: partial})
			}
			soon = result.unsettled
			timer.Reset(f.next(result))
		}
	}
}

// unread says whether some file was never read to its end: what runs from it
// is not known. What is no file has no pods. Once all were read, a new file is
// one whose pods cannot run yet.
func (f *File) unread() bool {
	return (!f.sent || f.partial) && slices.ContainsFunc(f.entries, func(e *entry) bool { return !e.whole })
}

// hold notes that the set is partial or not, and tells when that changes.
func (f *File) hold(partial bool) {
	if partial && !f.partial {
		f.log.Warn("some manifests could not be read: nothing that runs is taken for unwanted until they are corrected or deleted", "path", f.path)
	}
	f.partial = partial
}

// waits says that the first set is not due yet: what cannot be read now may
// be the manifest of a pod that runs.
func (f *File) waits(result result) bool {
	if f.sent {
		return false
	}
	return result.failed || ((result.unsettled || result.retry) && time.Since(f.started) < startLimit)
}

// next is the time to the next look.
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
		return jittered(rescan)
	}
}

// pods are those of all files, the first of two that name the same.
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
			message := fmt.Sprintf("%s: a pod of this name is in %s already, which counts", e.path, other.path)
			key := ref.FullName() + " " + string(p.UID) + " " + message
			if _, old := f.refused[key]; !old {
				f.events.Warning(ref, ReasonDuplicatePod, clip(message))
			}
			refused[key] = struct{}{}
		}
	}
	f.refused = refused
	return all
}
