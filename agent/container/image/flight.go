package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// flight is one pull that every pod waits for that wants the image.
type flight struct {
	done chan struct{} // closed at the end; the rest is set before
	ref  string
	took time.Duration
	err  error
	// abandoned says that the pod that pulled was stopped; one of those that
	// wait takes over.
	abandoned bool
}

// request is what a pull needs to know.
type request struct {
	pod         pod.Ref
	image       string // as the pod asks for it
	spec        *runtimeapi.ImageSpec
	sandbox     *runtimeapi.PodSandboxConfig
	credentials []credential
}

// flightKey is what pulls have in common that may be one.
type flightKey struct {
	image string // the name in full
	sum   [sha256.Size]byte
}

// join pulls an image, or waits for the pull that runs already.
func (p *Puller) join(ctx context.Context, key flightKey, r *request) (ref string, took time.Duration, err error) {
	for {
		p.mu.Lock()
		f := p.flights[key]
		if f == nil {
			f = &flight{done: make(chan struct{})}
			p.flights[key] = f
			p.mu.Unlock()
			p.fly(ctx, f, key, r)
			return f.ref, f.took, f.err
		}
		p.mu.Unlock()
		p.cfg.Log.Debug("waiting for a pull that runs already", "image", r.image)
		select {
		case <-ctx.Done():
			return "", 0, fmt.Errorf("wait for the pull of image %q: %w", r.image, context.Cause(ctx))
		case <-f.done:
		}
		if !f.abandoned {
			return f.ref, f.took, f.err
		}
	}
}

func (p *Puller) fly(ctx context.Context, f *flight, key flightKey, r *request) {
	f.ref, f.took, f.err = p.pull(ctx, r)
	f.abandoned = f.err != nil && ctx.Err() != nil
	p.mu.Lock()
	delete(p.flights, key)
	p.mu.Unlock()
	close(f.done)
}

// pace waits until another pull may begin.
func (p *Puller) pace(ctx context.Context) error {
	if p.rate == nil {
		return nil
	}
	slot := p.rate.Reserve()
	timer := time.NewTimer(slot.Delay())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		slot.Cancel()
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// pull waits for its turn and pulls.
func (p *Puller) pull(ctx context.Context, r *request) (ref string, took time.Duration, err error) {
	if p.turn != nil {
		select {
		case <-ctx.Done():
			return "", 0, fmt.Errorf("wait to pull image %q: %w", r.image, context.Cause(ctx))
		case p.turn <- struct{}{}:
		}
		defer func() { <-p.turn }()
	}
	if err := p.pace(ctx); err != nil {
		return "", 0, fmt.Errorf("wait to pull image %q: %w", r.image, err)
	}
	stop := p.watch(r.pod, r.image)
	defer stop()
	begun := time.Now()
	ref, err = p.try(ctx, r.spec, r.credentials, r.sandbox)
	return ref, time.Since(begun), err
}
