package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// Reasons of the node's events (pkg/kubelet/events/event.go).
const (
	eventFreeDiskSpace   = "FreeDiskSpaceFailed"
	eventGCFailed        = "ImageGCFailed"
	eventInvalidCapacity = "InvalidDiskCapacity"
)

// gcPeriod is how often the disk is looked at (ImageGCPeriod in
// pkg/kubelet/kubelet.go), with a tenth of it more at random.
const gcPeriod = 5 * time.Minute

// maxNoted limits how many names are remembered between two lists.
const maxNoted = 1000

// GCConfig is what a GC works with.
type GCConfig struct {
	Images interface {
		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
		ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
		RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
		ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	}
	// InUse answers the images that the node's pods name, those of image
	// volumes too, as names or IDs. It is asked often and must be cheap.
	InUse func() []string
	// Keep are images that are never removed, as names or IDs.
	Keep []string
	// High and Low are per cent of the image filesystem: from High on images
	// are removed until Low is reached. A High of 100 removes none for space.
	High, Low int
	// MinAge is how long an image must have been known to be removed for
	// space. MaxAge is how long it may stay unused; 0 is for ever.
	MinAge, MaxAge time.Duration
	// Usage measures the filesystem at a path; nil is statfs.
	Usage  func(path string) (Usage, error)
	Events *event.Recorder
	Log    *slog.Logger
}

// GC removes images that nobody uses. Its methods are safe for concurrent
// use. What it knows of an image's use begins with the agent's start.
type GC struct {
	cfg GCConfig

	mu     sync.Mutex
	began  time.Time
	path   string               // where images are; empty before the runtime said so
	seen   map[string]spell     // by ID, of the images of the last list
	used   map[string]time.Time // by name or ID: what pods used since then
	listed bool
}

// NewGC makes a GC; nothing is started.
func NewGC(c GCConfig) (*GC, error) {
	if c.High < 0 || c.High > 100 || c.Low < 0 || c.Low > c.High {
		return nil, fmt.Errorf("image garbage collection: thresholds %d and %d are not 0 <= low <= high <= 100", c.Low, c.High)
	}
	if c.MinAge < 0 || c.MaxAge < 0 {
		return nil, fmt.Errorf("image garbage collection: negative age %v or %v", c.MinAge, c.MaxAge)
	}
	if c.Usage == nil {
		c.Usage = statfs
	}
	return &GC{cfg: c, seen: make(map[string]spell), used: make(map[string]time.Time)}, nil
}

// Run collects every few minutes until ctx ends, with its error. While there
// is nothing to do, that costs one statfs.
func (g *GC) Run(ctx context.Context) error {
	failures := 0
	for {
		again, err := g.collect(ctx, false)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			// Once is nothing to tell: the runtime may just be starting.
			if failures++; failures > 1 {
				g.cfg.Events.Warning(pod.Ref{}, eventGCFailed, err.Error())
				g.cfg.Log.Warn("image garbage collection failed", "error", err, "times", failures)
			}
		default:
			failures = 0
		}
		wait := gcPeriod + rand.N(gcPeriod/10)
		if again > 0 {
			wait = min(wait, again)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// Collect looks at the disk now and removes what has to go. It blocks on the
// runtime and fails if not enough could be removed.
func (g *GC) Collect(ctx context.Context) error {
	_, err := g.collect(ctx, false)
	return err
}

// RemoveUnused removes every image that nobody uses and that is not younger
// than MinAge, for an eviction that needs space at any price.
func (g *GC) RemoveUnused(ctx context.Context) error {
	_, err := g.collect(ctx, true)
	return err
}

// collect answers when to look again before the usual time: when images that
// are too young now have come of age; 0 is no need.
func (g *GC) collect(ctx context.Context, everything bool) (again time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.began.IsZero() {
		g.began = now
	}
	g.noteUse(now)
	u, err := g.usage(ctx)
	if err != nil {
		return 0, err
	}
	full := g.cfg.High < 100 && u.percent() >= g.cfg.High
	if g.listed && len(g.used) < maxNoted && !full && !everything && g.cfg.MaxAge == 0 {
		return 0, nil
	}
	images, err := g.list(ctx, now)
	if err != nil {
		return 0, err
	}
	p := policy{now: now, began: g.began, minAge: g.cfg.MinAge, maxAge: g.cfg.MaxAge}
	old, rest := p.tooOld(images)
	failed := g.removeAll(ctx, old, "age")
	ripe, again := p.bySpace(rest)
	switch {
	case everything:
		return 0, errors.Join(failed, g.removeAll(ctx, ripe, "space"))
	case full:
		return again, errors.Join(failed, g.free(ctx, u, ripe))
	}
	return 0, failed
}

// free removes images, the longest unused first, until the low watermark is
// reached. What is free is measured anew after each: images share layers,
// and their sizes are those of the compressed layers.
func (g *GC) free(ctx context.Context, u Usage, images []candidate) error {
	before, percent := u.Available, u.percent()
	g.cfg.Log.Info("image filesystem is too full, images nobody uses are removed", "path", g.path,
		"usedPercent", percent, "lowPercent", g.cfg.Low, "images", len(images))
	var failed error
	for _, c := range images {
		if u.missing(g.cfg.Low) == 0 {
			return failed
		}
		if err := g.remove(ctx, c, "space"); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		var err error
		if u, err = g.cfg.Usage(g.path); err != nil {
			return errors.Join(failed, fmt.Errorf("measure the image filesystem at %q: %w", g.path, err))
		}
	}
	missing := u.missing(g.cfg.Low)
	if missing == 0 || failed != nil {
		return failed
	}
	g.cfg.Log.Warn("image filesystem stays too full", "path", g.path, "missingBytes", missing, "freedBytes", max(u.Available-before, 0))
	// No figures that change: the same event is counted, not repeated.
	message := fmt.Sprintf("the image filesystem at %q is over %d%% full, and removing images that nobody uses does not help: "+
		"images in use, logs, volumes or other files take the space", g.path, g.cfg.High)
	g.cfg.Events.Warning(pod.Ref{}, eventFreeDiskSpace, message)
	return errors.New(message)
}

func (g *GC) removeAll(ctx context.Context, images []candidate, why string) error {
	var failed error
	for _, c := range images {
		failed = errors.Join(failed, g.remove(ctx, c, why))
	}
	return failed
}

// remove removes an image unless a pod has asked for it meanwhile.
func (g *GC) remove(ctx context.Context, c candidate, why string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if newUses(g.cfg.InUse()).of(c.image) {
		return nil
	}
	if err := g.cfg.Images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: c.image.GetId()}); err != nil {
		return fmt.Errorf("remove an unused image: %w", err)
	}
	delete(g.seen, c.image.GetId())
	g.cfg.Log.Info("image removed", "image", displayName(c.image), "imageID", c.image.GetId(), "bytes", c.image.GetSize(), "why", why)
	return nil
}
