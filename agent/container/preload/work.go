package preload

import (
	"bytes"
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
	"unicode/utf8"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// Reasons of the node's events. The kubelet has no equivalents.
const (
	eventPreloaded = "ImageArchiveImported"
	eventFailed    = "ImageArchiveFailed"
)

// Retries after a failure that is not the archive's fault.
const (
	retryFirst  = time.Second
	retryMax    = 30 * time.Second
	maxFailures = 6 // consecutive; then pods no longer wait for the archive
	retryFailed = 10 * time.Minute
)

// errChanged means that a file has changed since the folder was listed.
var errChanged = errors.New("archive changed since it was listed")

// work reads an archive, or imports it if its images are already known. For an import it
// reads the archive again if the plan was not retained.
func (p *Preloader) work(ctx context.Context, root *os.Root, f *archiveFile) error {
	if !utf8.ValidString(f.name) {
		return invalidf("file name is not UTF-8") // the journal cannot hold it
	}
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
		reader := planner{archive: a, host: p.cfg.Platform, runs: platforms.Only(p.cfg.Platform)}
		if plan, err = reader.read(ctx); err != nil {
			return err
		}
	}
	if len(f.images) == 0 {
		// All archives are read before one is imported.
		p.update(func() { f.state, f.images, f.plan = waiting, plan.names(), plan.retainable() })
		return nil
	}
	p.update(func() { f.state = running })
	if err := p.importImages(ctx, a, f, plan); err != nil {
		return err
	}
	p.record(f)
	p.update(func() {
		f.state, f.plan, f.needed, f.failures, f.lastAttempt = done, nil, false, 0, time.Now()
	})
	return nil
}

// maxRetainedPlan limits the bytes of a plan that is kept between reading and
// importing.
const maxRetainedPlan = 256 << 10

// retainable returns the plan, or nil if it is larger than maxRetainedPlan and
// must be made again for the import.
func (p *plan) retainable() *plan {
	held := 0
	for _, s := range p.blobs {
		held += len(s.data)
	}
	if held > maxRetainedPlan {
		return nil
	}
	return p
}

// fail handles the error of an attempt. It schedules a retry, or marks the archive as
// failed and records an event. While the runtime is unavailable or does not respond, the
// number of retries is not limited.
func (p *Preloader) fail(ctx context.Context, f *archiveFile, err error) {
	if ctx.Err() != nil {
		p.update(func() { f.state = waiting })
		return // the import is resumed at the next start
	}
	now := time.Now()
	if errors.Is(err, errChanged) {
		// The folder is listed again, which makes a new file value.
		p.update(func() { f.state, f.retryAt = waiting, now.Add(retryFirst) })
		return
	}
	broken := errors.Is(err, errInvalidArchive) || errors.Is(err, container.ErrCorrupt) || errors.Is(err, container.ErrUnsupported)
	var failures int // Wait may reset those of f
	p.update(func() { f.failures++; failures = f.failures })
	away := errors.Is(err, container.ErrUnavailable) || errors.Is(err, container.ErrTimeout)
	if !broken && (away || failures < maxFailures) {
		wait := min(retryFirst<<min(failures-1, 5), retryMax)
		p.cfg.Log.Warn("retry image archive", "archive", f.name, "error", err, "retryIn", wait)
		p.update(func() { f.state, f.retryAt = waiting, now.Add(wait) })
		return
	}
	p.cfg.Events.Warning(pod.Ref{}, eventFailed, fmt.Sprintf("Failed to import image archive %q: %v", f.name, err))
	p.update(func() {
		f.state, f.broken, f.plan, f.needed, f.lastAttempt, f.retryAt = failed, broken, nil, false, now, now.Add(retryFailed)
		if f.images == nil {
			f.images = map[string]digest.Digest{} // no longer unread: pods do not wait for it
		}
	})
}

// openFile opens an archive. It returns errChanged if the file is not the one
// that was listed.
func openFile(root *os.Root, f *archiveFile) (*os.File, error) {
	file, err := root.OpenFile(f.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errChanged
	}
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
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

func (p *Preloader) importImages(ctx context.Context, a *archive, f *archiveFile, plan *plan) error {
	if err := p.protect(ctx); err != nil {
		return err
	}
	begun := time.Now()
	p.cfg.Log.Info("import image archive", "archive", f.name, "images", len(plan.images), "bytes", plan.bytes)
	progress := &progress{log: p.cfg.Log, archive: f.name, total: plan.bytes, lastLogged: begun}
	if err := p.putAll(ctx, a, plan, progress); err != nil {
		return err
	}
	if err := p.tagAll(ctx, plan); err != nil {
		return err
	}
	p.cfg.Events.Normal(pod.Ref{}, eventPreloaded, fmt.Sprintf("Imported image archive %q: %s", f.name, strings.Join(plan.tags(), ", ")))
	p.cfg.Log.Info("imported image archive", "archive", f.name, "bytes", plan.bytes, "seconds", int64(time.Since(begun)/time.Second))
	return nil
}

func (p *plan) tags() []string {
	var out []string
	for _, img := range p.images {
		for _, name := range img.names {
			out = append(out, name.String())
		}
	}
	return out
}

// putAll stores the blobs: those of the archive in their order there, then those in
// memory, which refer to them.
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
		if err := p.cfg.Importer.Put(ctx, s.Blob, bytes.NewReader(s.data)); err != nil {
			return fmt.Errorf("store blob %s: %w", s.Digest, err)
		}
	}
	return nil
}

// put stores one blob of the archive. It distinguishes errors of the archive
// from errors of the store.
func (p *Preloader) put(ctx context.Context, a *archive, s *source, r io.Reader, progress *progress) error {
	t := &tracked{r: r, progress: progress}
	var from io.Reader = t
	if seeker, ok := r.(io.Seeker); ok {
		from = &seekable{tracked: t, s: seeker}
	}
	err := p.cfg.Importer.Put(ctx, s.Blob, from)
	progress.before += s.Size // also if it was already stored
	if err != nil && t.err != nil {
		return a.readError(ctx, t.err)
	}
	if err != nil {
		return fmt.Errorf("store blob %s: %w", s.Digest, err)
	}
	return nil
}

// tagAll creates the images, with a tag and with a digest as after a pull, and
// waits until the runtime's CRI service shows them.
func (p *Preloader) tagAll(ctx context.Context, plan *plan) error {
	for _, img := range plan.images {
		for _, name := range img.names {
			for _, n := range []string{withDigest(name, img.target.Digest), name.String()} {
				if err := p.cfg.Importer.Tag(ctx, n, img.target); err != nil {
					return err
				}
			}
			if err := p.waitVisible(ctx, name.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// The first poll interval and the timeout until the runtime's CRI service
// shows a new image.
const (
	visiblePollFirst = 20 * time.Millisecond
	visibleTimeout   = 15 * time.Second
)

func (p *Preloader) waitVisible(ctx context.Context, name string) error {
	limit := time.Now().Add(visibleTimeout)
	for pause := visiblePollFirst; ; pause = min(2*pause, time.Second) {
		img, err := p.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
		if err != nil {
			return err
		}
		if img != nil {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("wait for imported image %q: not shown by the runtime within %v", name, visibleTimeout)
		}
		if !wait.Pause(ctx, pause) {
			return ctx.Err()
		}
	}
}
