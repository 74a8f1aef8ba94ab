package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// flight is one pull. All pods that need the image with the same credentials wait for it.
type flight struct {
	done chan struct{} // closed at the end, after the other fields are set
	ref  string
	took time.Duration
	err  error
	// abandoned is set if the pod that pulled was stopped. One of the waiting
	// pods then starts the pull again.
	abandoned bool
}

// request holds the parameters of a pull.
type request struct {
	pod         pod.Ref
	image       string // as spelled in the pod's spec
	spec        *runtimeapi.ImageSpec
	sandbox     *runtimeapi.PodSandboxConfig
	credentials []credential
}

// flightKey identifies pulls that may be shared.
type flightKey struct {
	image string            // the full name
	sum   [sha256.Size]byte // of the credentials
}

// join pulls an image, or waits for the pull that is in progress. If the pod that pulls is
// stopped, a waiting caller pulls.
func (p *Puller) join(ctx context.Context, key flightKey, r *request) (ref string, took time.Duration, err error) {
	for {
		p.mu.Lock()
		f := p.flights[key]
		if f == nil {
			f = &flight{done: make(chan struct{})}
			p.flights[key] = f
			p.mu.Unlock()
			p.runFlight(ctx, f, key, r)
			return f.ref, f.took, f.err
		}
		p.mu.Unlock()
		p.cfg.Log.Debug("wait for image pull in progress", "image", r.image)
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

// runFlight pulls, and publishes the result in f.
func (p *Puller) runFlight(ctx context.Context, f *flight, key flightKey, r *request) {
	f.ref, f.took, f.err = p.pull(ctx, r)
	f.abandoned = f.err != nil && ctx.Err() != nil
	p.mu.Lock()
	delete(p.flights, key)
	p.mu.Unlock()
	close(f.done)
}

// waitRateLimit blocks until the rate limit allows another pull.
func (p *Puller) waitRateLimit(ctx context.Context) error {
	if p.rate == nil {
		return nil
	}
	slot := p.rate.Reserve()
	if !wait.Pause(ctx, slot.Delay()) {
		slot.Cancel()
		return context.Cause(ctx)
	}
	return nil
}

// pull waits for a free slot and for the rate limit, then pulls. took does
// not include the wait.
func (p *Puller) pull(ctx context.Context, r *request) (ref string, took time.Duration, err error) {
	if p.slots != nil {
		select {
		case <-ctx.Done():
			return "", 0, fmt.Errorf("wait to pull image %q: %w", r.image, context.Cause(ctx))
		case p.slots <- struct{}{}:
		}
		defer func() { <-p.slots }()
	}
	if err := p.waitRateLimit(ctx); err != nil {
		return "", 0, fmt.Errorf("wait to pull image %q: %w", r.image, err)
	}
	stop := p.reportProgress(ctx, r.pod, r.image)
	defer stop()
	begun := time.Now()
	ref, err = p.try(ctx, r.spec, r.credentials, r.sandbox)
	return ref, time.Since(begun), err
}
