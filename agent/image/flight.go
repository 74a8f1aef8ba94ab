package image

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

// join pulls an image, or waits for the pull that runs already.
func (p *Puller) join(ctx context.Context, image string, spec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (ref string, took time.Duration, err error) {
	for {
		p.mu.Lock()
		f := p.flights[image]
		if f == nil {
			f = &flight{done: make(chan struct{})}
			p.flights[image] = f
			p.mu.Unlock()
			p.fly(ctx, f, image, spec, sandbox)
			return f.ref, f.took, f.err
		}
		p.mu.Unlock()
		p.cfg.Log.Debug("waiting for a pull that runs already", "image", image)
		select {
		case <-ctx.Done():
			return "", 0, fmt.Errorf("wait for the pull of image %q: %w", image, context.Cause(ctx))
		case <-f.done:
		}
		if !f.abandoned {
			return f.ref, f.took, f.err
		}
	}
}

func (p *Puller) fly(ctx context.Context, f *flight, image string, spec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) {
	f.ref, f.took, f.err = p.pull(ctx, image, spec, sandbox)
	f.abandoned = f.err != nil && ctx.Err() != nil
	p.mu.Lock()
	delete(p.flights, image)
	p.mu.Unlock()
	close(f.done)
}

// pull waits for its turn and pulls.
func (p *Puller) pull(ctx context.Context, image string, spec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (ref string, took time.Duration, err error) {
	if p.turn != nil {
		select {
		case <-ctx.Done():
			return "", 0, fmt.Errorf("wait to pull image %q: %w", image, context.Cause(ctx))
		case p.turn <- struct{}{}:
		}
		defer func() { <-p.turn }()
	}
	begun := time.Now()
	ref, err = p.cfg.Images.PullImage(ctx, spec, nil, sandbox)
	return ref, time.Since(begun), err
}
