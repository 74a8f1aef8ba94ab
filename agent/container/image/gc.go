package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
)

// Reasons of the node's events (pkg/kubelet/events/event.go).
const (
	eventFreeDiskSpace   = "FreeDiskSpaceFailed"
	eventGCFailed        = "ImageGCFailed"
	eventInvalidCapacity = "InvalidDiskCapacity"
)

// gcPeriod is the time between two checks of the disk (ImageGCPeriod in
// pkg/kubelet/kubelet.go). Up to a tenth of it is added as jitter.
const gcPeriod = 5 * time.Minute

// maxRecordedUses is the number of names in use that causes images to be listed
// again. It limits how many are recorded between two lists.
const maxRecordedUses = 1000

// GCConfig configures a GC.
type GCConfig struct {
	Images interface {
		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
		ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
		RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
		ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	}
	// InUse returns the images that the node's pods name, including those of
	// image volumes, as names or IDs. It is called often and must be cheap.
	InUse func() []string
	// High and Low are thresholds of the usage of the image filesystem in percent. If
	// High is reached, images are removed until usage is down to Low. A High of 100
	// disables removal for space, except by RemoveUnused.
	High, Low int
	// MinAge is how long an image must have been known before it can be
	// removed for space. MaxAge is how long it may stay unused; 0 is no limit.
	MinAge, MaxAge time.Duration
	// Usage measures the filesystem at a path; nil uses statfs.
	Usage  func(path string) (Usage, error)
	Events *event.Recorder
	Log    *slog.Logger
}

// GC is the image garbage collector: it removes unused images. Its methods
// are safe for concurrent use. It tracks the use of images from the agent's
// start; use before that is unknown.
type GC struct {
	cfg GCConfig

	mu         sync.Mutex
	started    time.Time
	path       string                 // of the image filesystem; empty until the runtime reports it
	records    map[string]imageRecord // by ID, of the images of the last list
	recentUses map[string]time.Time   // by name or ID, the uses by pods since the last list
	listed     bool
}

// NewGC returns a GC, or an error if the thresholds or ages are invalid. It
// starts nothing.
func NewGC(c GCConfig) (*GC, error) {
	if c.High < 0 || c.High > 100 || c.Low < 0 || c.Low > c.High {
		return nil, fmt.Errorf("image garbage collection: thresholds low %d and high %d must satisfy 0 <= low <= high <= 100", c.Low, c.High)
	}
	if c.MinAge < 0 || c.MaxAge < 0 {
		return nil, fmt.Errorf("image garbage collection: MinAge %v and MaxAge %v must not be negative", c.MinAge, c.MaxAge)
	}
	if c.Usage == nil {
		c.Usage = statfs
	}
	return &GC{cfg: c, records: make(map[string]imageRecord), recentUses: make(map[string]time.Time)}, nil
}

// Run collects about every 5 minutes until ctx ends, and returns its error. While no image
// must be removed and MaxAge is 0, a collection makes one statfs and no call to the runtime,
// except for the first one and after maxRecordedUses names were recorded.
func (g *GC) Run(ctx context.Context) error {
	failures := 0
	for {
		again, err := g.collect(ctx, false)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			// The first failure is not reported: the runtime may be starting.
			if failures++; failures > 1 {
				g.cfg.Events.Warning(pod.Ref{}, eventGCFailed, err.Error())
				g.cfg.Log.Warn("image garbage collection failed", "error", err, "failures", failures)
			}
		default:
			failures = 0
		}
		pause := wait.Longer(gcPeriod)
		if again > 0 {
			pause = min(pause, again)
		}
		if !wait.Pause(ctx, pause) {
			return ctx.Err()
		}
	}
}

// RemoveUnused removes every unused image that is at least MinAge old,
// regardless of the thresholds. Eviction calls it to reclaim disk space.
func (g *GC) RemoveUnused(ctx context.Context) error {
	_, err := g.collect(ctx, true)
	return err
}

// collect removes images that were unused for longer than MaxAge and, if the high threshold
// is reached, unused images until usage is down to the low threshold. With everything set it
// removes all unused images that have reached MinAge. It blocks on the runtime and returns an
// error if it could not free enough. again is the time until an image that is too young now
// reaches MinAge, for a collection before the usual one; 0 means that none is needed.
func (g *GC) collect(ctx context.Context, everything bool) (again time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.started.IsZero() {
		g.started = now
	}
	g.recordUse(now)
	u, err := g.usage(ctx)
	if err != nil {
		return 0, err
	}
	full := g.cfg.High < 100 && u.percent() >= g.cfg.High
	if g.listed && len(g.recentUses) < maxRecordedUses && !full && !everything && g.cfg.MaxAge == 0 {
		return 0, nil
	}
	images, err := g.list(ctx, now)
	if err != nil {
		return 0, err
	}
	p := policy{now: now, began: g.started, minAge: g.cfg.MinAge, maxAge: g.cfg.MaxAge}
	old, rest := p.splitByAge(images)
	failed := g.removeAll(ctx, old, "age")
	if endsRemoval(ctx, failed) {
		return 0, failed
	}
	if full && !everything && len(old) > 0 {
		// The removal by age may have freed enough.
		if u, err = g.usage(ctx); err != nil {
			return 0, errors.Join(failed, err)
		}
		full = u.percent() >= g.cfg.High
	}
	ripe, again := p.bySpace(rest)
	switch {
	case everything:
		return 0, errors.Join(failed, g.removeAll(ctx, ripe, "space"))
	case full:
		return again, errors.Join(failed, g.freeSpace(ctx, u, ripe))
	}
	return 0, failed
}

// freeSpace removes images in their order until usage is down to the low threshold. u is the
// usage before. It measures the usage after each removal, because images share layers and
// their reported sizes are those of the compressed layers.
func (g *GC) freeSpace(ctx context.Context, u Usage, images []candidate) error {
	before, percent := u.Available, u.percent()
	g.cfg.Log.Info("image filesystem above high threshold, remove images", "path", g.path,
		"usedPercent", percent, "lowPercent", g.cfg.Low, "images", len(images))
	var failed error
	for _, c := range images {
		if u.bytesToFree(g.cfg.Low) == 0 {
			return failed
		}
		if err := g.remove(ctx, c, "space"); err != nil {
			failed = errors.Join(failed, err)
			if endsRemoval(ctx, err) {
				return failed
			}
			continue
		}
		var err error
		if u, err = g.cfg.Usage(g.path); err != nil {
			return errors.Join(failed, fmt.Errorf("measure image filesystem at %q: %w", g.path, err))
		}
	}
	missing := u.bytesToFree(g.cfg.Low)
	if missing == 0 || failed != nil {
		return failed
	}
	g.cfg.Log.Warn("image garbage collection freed too little", "path", g.path, "missingBytes", missing, "freedBytes", max(u.Available-before, 0))
	// The message has no changing numbers, so that the event is counted and
	// not repeated.
	message := fmt.Sprintf("image filesystem at %q is over the high threshold of %d%% and removing unused images freed too little: "+
		"images in use, logs, volumes or other files take the space", g.path, g.cfg.High)
	g.cfg.Events.Warning(pod.Ref{}, eventFreeDiskSpace, message)
	return errors.New(message)
}

func (g *GC) removeAll(ctx context.Context, images []candidate, why string) error {
	var failed error
	for _, c := range images {
		err := g.remove(ctx, c, why)
		failed = errors.Join(failed, err)
		if endsRemoval(ctx, err) {
			break
		}
	}
	return failed
}

// endsRemoval reports whether the removal of other images would fail like one that failed
// with err: ctx has ended, or the runtime does not respond.
func endsRemoval(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, container.ErrUnavailable) || errors.Is(err, container.ErrTimeout)
}

// remove removes an image, unless a pod uses it since the images were listed.
func (g *GC) remove(ctx context.Context, c candidate, why string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if newImageSet(g.cfg.InUse()).contains(c.image) {
		return nil
	}
	if err := g.cfg.Images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: c.image.GetId()}); err != nil {
		return fmt.Errorf("remove unused image %q: %w", displayName(c.image), err)
	}
	delete(g.records, c.image.GetId())
	g.cfg.Log.Info("removed image", "image", displayName(c.image), "imageID", c.image.GetId(), "bytes", c.image.GetSize(), "reason", why)
	return nil
}

// InUse returns the names of the images that non-terminal pods use, for GCConfig.InUse.
func InUse(entries []pod.Entry) []string {
	var names []string
	for _, e := range entries {
		if pod.IsTerminal(e.Status.Phase) {
			continue
		}
		for c := range pod.Containers(&e.Pod.Spec) {
			names = append(names, c.Image)
		}
		for i := range e.Pod.Spec.Volumes {
			if source := e.Pod.Spec.Volumes[i].Image; source != nil {
				names = append(names, source.Reference)
			}
		}
	}
	return names
}
