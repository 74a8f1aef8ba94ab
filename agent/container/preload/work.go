package preload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// Reasons of the node's events: the kubelet has none for this.
const (
	eventPreloaded = "ImageArchiveImported"
	eventFailed    = "ImageArchiveFailed"
)

// What follows a failure that is not the archive's fault.
const (
	retryFirst  = time.Second
	retryMax    = 30 * time.Second
	maxFailures = 6 // in a row; then pods no longer wait for it
	retryFailed = 10 * time.Minute
)

// errChanged says that a file is not what the folder's list said.
var errChanged = errors.New("the archive has changed meanwhile")

// work reads an archive, or imports it if it is known what it has.
func (p *Preloader) work(ctx context.Context, root *os.Root, f *file) {
	err := p.attempt(ctx, root, f)
	if err != nil {
		p.fail(ctx, f, err)
	}
}

func (p *Preloader) attempt(ctx context.Context, root *os.Root, f *file) error {
	file, err := openFile(root, f)
	if err != nil {
		return err
	}
	defer file.Close()
	a, err := open(file, f.sig.Size)
	if err != nil {
		return err
	}
	plan := f.plan
	if plan == nil {
		reader := planner{archive: a, host: p.cfg.Platform, fullName: p.cfg.FullName}
		if plan, err = reader.read(ctx); err != nil {
			return err
		}
	}
	if len(f.images) == 0 {
		// The others are read before this one is imported.
		p.set(f, func() { f.state, f.images, f.plan = waiting, plan.names(), plan.small() })
		return nil
	}
	p.set(f, func() { f.state = running })
	if err := p.bring(ctx, a, f, plan); err != nil {
		return err
	}
	p.record(f)
	p.set(f, func() {
		f.state, f.plan, f.wanted, f.failures, f.ended = done, nil, false, 0, time.Now()
	})
	return nil
}

// keptPlan is how much of a plan is kept between reading and importing.
const keptPlan = 256 << 10

// small is the plan, or nil if it is better made again.
func (p *plan) small() *plan {
	held := 0
	for _, s := range p.blobs {
		held += len(s.data)
	}
	if held > keptPlan {
		return nil
	}
	return p
}

// fail decides whether the archive is tried again.
func (p *Preloader) fail(ctx context.Context, f *file, err error) {
	if ctx.Err() != nil {
		p.set(f, func() { f.state = waiting })
		return // the next start goes on
	}
	now := time.Now()
	if errors.Is(err, errChanged) {
		// The folder is read again, and what comes of it is a new file.
		p.set(f, func() { f.state, f.again = waiting, now.Add(retryFirst) })
		return
	}
	broken := errors.Is(err, errBad) || errors.Is(err, container.ErrCorrupt) || errors.Is(err, container.ErrUnsupported)
	p.set(f, func() { f.failures++ })
	away := errors.Is(err, container.ErrUnavailable) || errors.Is(err, container.ErrTimeout)
	if !broken && (away || f.failures < maxFailures) {
		wait := min(retryFirst<<min(f.failures-1, 5), retryMax)
		p.cfg.Log.Warn("image archive is tried again", "archive", f.name, "error", err, "after", wait)
		p.set(f, func() { f.state, f.again = waiting, now.Add(wait) })
		return
	}
	p.cfg.Events.Warning(pod.Ref{}, eventFailed, fmt.Sprintf("Image archive %q cannot be imported: %v", f.name, err))
	p.set(f, func() {
		f.state, f.broken, f.plan, f.wanted, f.ended, f.again = failed, broken, nil, false, now, now.Add(retryFailed)
		if f.images == nil {
			f.images = map[string]string{} // nobody has to wait to know
		}
	})
}

// openFile opens an archive that must still be what the list said.
func openFile(root *os.Root, f *file) (*os.File, error) {
	file, err := root.OpenFile(f.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errChanged
	}
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || signatureOf(info) != f.sig) {
		err = errChanged
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// bring imports what is planned.
func (p *Preloader) bring(ctx context.Context, a *archive, f *file, plan *plan) error {
	if err := p.protect(ctx); err != nil {
		return err
	}
	begun := time.Now()
	p.cfg.Log.Info("image archive is imported", "archive", f.name, "images", len(plan.images), "bytes", plan.bytes)
	progress := &progress{log: p.cfg.Log, archive: f.name, total: plan.bytes, said: begun}
	if err := p.putAll(ctx, a, plan, progress); err != nil {
		return err
	}
	if err := p.tagAll(ctx, plan); err != nil {
		return err
	}
	p.cfg.Events.Normal(pod.Ref{}, eventPreloaded, fmt.Sprintf("Image archive %q is imported: %s", f.name, strings.Join(plan.tags(), ", ")))
	p.cfg.Log.Info("image archive has been imported", "archive", f.name, "bytes", plan.bytes, "seconds", int64(time.Since(begun)/time.Second))
	return nil
}

func (p *plan) tags() []string {
	var out []string
	for _, img := range p.images {
		out = append(out, img.names...)
	}
	return out
}

// putAll stores the blobs: those of the archive in its order, then the small
// ones that refer to them.
func (p *Preloader) putAll(ctx context.Context, a *archive, plan *plan, progress *progress) error {
	bySerial := make(map[int]*source)
	serials := make(map[int]bool)
	for _, s := range plan.blobs {
		if s.data == nil {
			bySerial[s.serial], serials[s.serial] = s, true
		}
	}
	if a.gzip {
		err := a.each(ctx, serials, func(e *entry, r io.Reader) error { return p.put(ctx, a, bySerial[e.serial], r, progress) })
		if err != nil {
			return err
		}
	} else {
		for _, serial := range slices.Sorted(maps.Keys(bySerial)) {
			s := bySerial[serial]
			r := a.section(ctx, &entry{offset: s.offset, size: s.Size})
			if err := p.put(ctx, a, s, r, progress); err != nil {
				return err
			}
		}
	}
	for _, s := range plan.blobs {
		if s.data == nil {
			continue
		}
		if err := p.cfg.Importer.Put(ctx, s.Blob, strings.NewReader(string(s.data))); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	return nil
}

func (p *Preloader) put(ctx context.Context, a *archive, s *source, r io.Reader, progress *progress) error {
	from := progress.follow(r)
	err := p.cfg.Importer.Put(ctx, s.Blob, from)
	progress.finish(s.Size)
	if broken := failureOf(from); err != nil && broken != nil {
		return a.trouble(ctx, broken)
	}
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	return nil
}

// tagAll names the images, by tag and by digest as after a pull, and waits
// until CRI shows them.
func (p *Preloader) tagAll(ctx context.Context, plan *plan) error {
	for _, img := range plan.images {
		for _, name := range img.names {
			for _, n := range []string{withDigest(name, img.target.Digest), name} {
				if err := p.cfg.Importer.Tag(ctx, n, img.target); err != nil {
					return fmt.Errorf("import: %w", err)
				}
			}
			if err := p.shown(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// How long the runtime's CRI side is given to hear of a new image.
const (
	shownFirst = 20 * time.Millisecond
	shownLimit = 15 * time.Second
)

func (p *Preloader) shown(ctx context.Context, name string) error {
	limit := time.Now().Add(shownLimit)
	for wait := shownFirst; ; wait = min(2*wait, time.Second) {
		img, err := p.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
		if err != nil {
			return fmt.Errorf("look for the imported image %q: %w", name, err)
		}
		if img != nil {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("the runtime does not show the imported image %q after %v", name, shownLimit)
		}
		if !p.pause(ctx, wait) {
			return ctx.Err()
		}
	}
}
