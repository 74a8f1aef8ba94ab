// Package image owns that a container's image is present before the
// container is created: names, pull policies, one pull at a time, the
// backoff between failed pulls, and the events and reasons that tell of it.
// The rules are the kubelet's (pkg/kubelet/images/image_manager.go).
package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/event"
	"github.com/tinylet/tinylet/agent/pod"
)

// Reasons of events (pkg/kubelet/events/event.go).
const (
	eventPulling   = "Pulling"
	eventPulled    = "Pulled"
	eventFailed    = "Failed"
	eventBackOff   = "BackOff"
	eventInspect   = "InspectFailed"
	eventNeverPull = "ErrImageNeverPull"
)

// Config is what a Puller works with.
type Config struct {
	Images container.Images
	Events *event.Recorder
	// Serialize lets one pull run at a time: the kubelet's
	// serializeImagePulls. Without it every image has its own.
	Serialize bool
	Log       *slog.Logger
}

// Puller makes images present. It is safe for concurrent use and has no
// goroutines of its own.
type Puller struct {
	cfg  Config
	turn chan struct{} // one slot; nil unless serialized

	mu      sync.Mutex
	flights map[string]*flight
	waits   waits
}

// NewPuller makes a puller; nothing is started.
func NewPuller(c Config) *Puller {
	p := &Puller{cfg: c, flights: make(map[string]*flight), waits: make(waits)}
	if c.Serialize {
		p.turn = make(chan struct{}, 1)
	}
	return p
}

// Ensure makes the image of container c present by its pull policy and
// answers the reference to create the container with. It blocks while a pull
// runs or waits for its turn, which only ctx limits. It fails with *Error,
// or with ctx's end.
func (p *Puller) Ensure(ctx context.Context, owner *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (imageRef string, err error) {
	ref := pod.RefOf(owner)
	name, err := ParseName(c.Image)
	if err != nil {
		message := fmt.Sprintf("image name %q of container %s is not valid: %v", c.Image, c.Name, err)
		p.cfg.Events.Warning(ref, eventInspect, message)
		return "", &Error{Reason: ReasonInvalidName, Message: message, Err: err}
	}
	// The annotations are the runtime's to read, as from a kubelet.
	spec := &runtimeapi.ImageSpec{Image: withTag(c.Image, name), Annotations: owner.Annotations}

	if policy := policyOf(c, name); policy != v1.PullAlways {
		id, err := p.present(ctx, ref, c, spec)
		if id != "" || err != nil {
			return id, err
		}
		if policy == v1.PullNever {
			message := fmt.Sprintf("image %q is not on this node and the pull policy is Never", c.Image)
			p.cfg.Events.Warning(ref, eventNeverPull, message)
			return "", &Error{Reason: ReasonNeverPull, Message: message}
		}
	}
	return p.fetch(ctx, ref, c, name, spec, sandbox)
}

// policyOf is the container's pull policy, or the API's default for it
// (pkg/apis/core/v1/defaults.go).
func policyOf(c *v1.Container, n Name) v1.PullPolicy {
	switch {
	case c.ImagePullPolicy != "":
		return c.ImagePullPolicy
	case n.Tag == latest:
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

// present answers the image's ID, or "" if it is not there.
func (p *Puller) present(ctx context.Context, ref pod.Ref, c *v1.Container, spec *runtimeapi.ImageSpec) (string, error) {
	found, err := p.cfg.Images.ImageStatus(ctx, spec)
	if err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		message := fmt.Sprintf("image %q cannot be inspected: %v", c.Image, err)
		p.cfg.Events.Warning(ref, eventInspect, message)
		return "", &Error{Reason: ReasonInspect, Message: message, Err: err}
	}
	if found == nil {
		return "", nil
	}
	p.cfg.Events.Normal(ref, eventPulled, fmt.Sprintf("Image %q is present already", c.Image))
	return found.GetId(), nil
}

// fetch pulls unless the last failure was too recent.
func (p *Puller) fetch(ctx context.Context, ref pod.Ref, c *v1.Container, name Name, spec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	key := waitKey{uid: ref.UID, image: name.String()}
	p.mu.Lock()
	left, why := p.waits.left(key, time.Now())
	p.mu.Unlock()
	if left > 0 {
		message := fmt.Sprintf("Waiting before image %q is pulled again", c.Image)
		p.cfg.Events.Normal(ref, eventBackOff, message)
		return "", &Error{Reason: ReasonBackOff, Message: message + ": " + why, RetryAfter: left}
	}

	p.cfg.Events.Normal(ref, eventPulling, fmt.Sprintf("Pulling image %q", c.Image))
	begun := time.Now()
	imageRef, took, err := p.join(ctx, name.String(), spec, sandbox)
	if err == nil {
		p.mu.Lock()
		delete(p.waits, key)
		p.mu.Unlock()
		p.cfg.Events.Normal(ref, eventPulled, fmt.Sprintf("Pulled image %q in %v (%v with waiting)",
			c.Image, took.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond)))
		return imageRef, nil
	}
	if ctx.Err() != nil {
		return "", err
	}
	failure := &Error{Reason: pullReason(err), Message: err.Error(), Err: err}
	// A runtime that went away says nothing about the image: its return is
	// not to be waited for longer than the caller does anyway.
	if !errors.Is(err, container.ErrUnavailable) {
		p.mu.Lock()
		failure.RetryAfter = p.waits.fail(key, time.Now(), failure.Error())
		p.mu.Unlock()
	}
	p.cfg.Events.Warning(ref, eventFailed, fmt.Sprintf("Image %q could not be pulled: %v", c.Image, err))
	return "", failure
}
