// Package image manages container images. It ensures that a container's image
// is present before the container is created, and it removes unused images
// when the disk fills up. It covers image names, pull policies, credentials,
// parallel pulls, the backoff after failed pulls, garbage collection, and the
// events and waiting reasons that report them. The rules are the kubelet's
// (pkg/kubelet/images/image_manager.go, image_gc_manager.go).
//
// imagePullCredentialsVerificationPolicy is not implemented: every pod of the
// node may use an image that is present, as before Kubernetes 1.35.
package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
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

// Config configures a Puller.
type Config struct {
	Images interface {
		ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
		PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (imageRef string, err error)
	}
	Events *event.Recorder
	// Serialize allows one pull at a time: the kubelet's
	// serializeImagePulls. Without it different images are pulled in parallel.
	Serialize bool
	// MaxParallel limits the number of parallel pulls if Serialize is not
	// set: the kubelet's maxParallelImagePulls; 0 is no limit.
	MaxParallel int
	// QPS and Burst limit how many pulls start per second, and how many at
	// once after an idle time: the kubelet's registryPullQPS and
	// registryBurst. A pull above the limit waits; the kubelet fails it. QPS 0
	// is no limit.
	QPS, Burst int
	// Node is the node's docker config; nil is none.
	Node *NodeAuth
	// MirrorCredentials allows the runtime to send a registry's credentials
	// to its mirrors too.
	MirrorCredentials bool
	// WaitPreloaded is called for an image that is not present and whose policy is not
	// Always. It blocks while an archive with this image is queued or being imported, and
	// while there are unread archives. It reports whether an archive has the image. ref is
	// the full name. nil disables image preloading.
	WaitPreloaded func(ctx context.Context, ref string) (known bool)
	Log           *slog.Logger
}

// ConfigFrom returns the part of a Config that the node's configuration has.
func ConfigFrom(c *config.Config) Config {
	k := &c.Kubelet
	out := Config{
		Serialize: *k.SerializeImagePulls, QPS: int(*k.RegistryPullQPS), Burst: int(k.RegistryBurst),
		MirrorCredentials: c.Tinylet.MirrorCredentials,
	}
	if n := k.MaxParallelImagePulls; n != nil {
		out.MaxParallel = int(*n)
	}
	return out
}

// Puller ensures that images are present. It is safe for concurrent use and
// has goroutines only during a pull.
type Puller struct {
	cfg   Config
	slots chan struct{} // one slot for each parallel pull; nil is no limit
	rate  *rate.Limiter // of the start of pulls; nil is no limit

	mu       sync.Mutex
	flights  map[flightKey]*flight
	backoffs backoffs
}

// NewPuller returns a Puller. It starts nothing.
func NewPuller(c Config) *Puller {
	p := &Puller{cfg: c, flights: make(map[flightKey]*flight), backoffs: make(backoffs)}
	switch {
	case c.Serialize:
		p.slots = make(chan struct{}, 1)
	case c.MaxParallel > 0:
		p.slots = make(chan struct{}, c.MaxParallel)
	}
	if c.QPS > 0 {
		p.rate = rate.NewLimiter(rate.Limit(c.QPS), max(c.Burst, 1))
	}
	return p
}

// Options are the optional parameters of Ensure.
type Options struct {
	// Sandbox is the config of the pod's sandbox, for the runtime.
	Sandbox *runtimeapi.PodSandboxConfig
	// Secrets are the pod's existing pull secrets in their order. They are
	// neither modified nor retained.
	Secrets []*v1.Secret
	// OnSlow is called before an operation that may take long: a pull, or the
	// wait for an archive. It must not block. It may be nil.
	OnSlow func()
}

// Ensure makes the image of container c present according to its pull policy
// and returns the reference to create the container with. img is the runtime's
// status of the image; it is nil after a pull, because the status was not
// queried again. Ensure blocks while a pull runs or waits for a slot; only ctx
// limits that. It returns an *Error, or an error because ctx ended.
func (p *Puller) Ensure(ctx context.Context, owner *v1.Pod, c *v1.Container, o Options) (imageRef string, img *runtimeapi.Image, err error) {
	if o.OnSlow == nil {
		o.OnSlow = func() {}
	}
	ref := pod.RefOf(owner)
	name, err := ParseName(c.Image)
	if err != nil {
		message := fmt.Sprintf("invalid image name %q of container %s: %v", c.Image, c.Name, err)
		p.cfg.Events.Warning(ref, eventInspect, message)
		return "", nil, &Error{Reason: ReasonInvalidName, Message: message, Err: err}
	}
	// As in the kubelet, the pod's annotations are passed to the runtime.
	spec := &runtimeapi.ImageSpec{Image: withDefaultTag(c.Image, name), Annotations: owner.Annotations}

	if policy := policyOf(c, name); policy != v1.PullAlways {
		img, err := p.presentOrPreloaded(ctx, ref, c, name, spec, o)
		if img != nil || err != nil {
			return img.GetId(), img, err
		}
		if policy == v1.PullNever {
			message := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
			p.cfg.Events.Warning(ref, eventNeverPull, message)
			return "", nil, &Error{Reason: ReasonNeverPull, Message: message}
		}
	}
	o.OnSlow()
	credentials, problems := p.credentials(name, o.Secrets)
	r := &request{pod: ref, image: c.Image, spec: spec, sandbox: o.Sandbox, credentials: credentials}
	imageRef, err = p.fetch(ctx, name, r, problems)
	return imageRef, nil, err
}

// presentOrPreloaded returns the image if it is present on the node. Otherwise it waits for
// the import of an archive with it. It returns nil if there is none.
func (p *Puller) presentOrPreloaded(ctx context.Context, ref pod.Ref, c *v1.Container, name Name, spec *runtimeapi.ImageSpec, o Options) (*runtimeapi.Image, error) {
	img, err := p.present(ctx, ref, c, spec)
	if img != nil || err != nil || p.cfg.WaitPreloaded == nil {
		return img, err
	}
	o.OnSlow()
	if !p.cfg.WaitPreloaded(ctx, name.String()) {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("wait for import of image %q: %w", c.Image, context.Cause(ctx))
	}
	return p.present(ctx, ref, c, spec)
}

// policyOf returns the container's pull policy, or the API's default if it has
// none (pkg/apis/core/v1/defaults.go).
func policyOf(c *v1.Container, n Name) v1.PullPolicy {
	switch {
	case c.ImagePullPolicy != "":
		return c.ImagePullPolicy
	case n.Tag == latest:
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

// present returns the runtime's status of the image, or nil if it is absent.
func (p *Puller) present(ctx context.Context, ref pod.Ref, c *v1.Container, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	found, err := p.cfg.Images.ImageStatus(ctx, spec)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		message := fmt.Sprintf("Failed to inspect image %q: %v", c.Image, err)
		p.cfg.Events.Warning(ref, eventInspect, message)
		return nil, &Error{Reason: ReasonInspect, Message: message, Err: err}
	}
	if found == nil {
		return nil, nil
	}
	p.cfg.Events.Normal(ref, eventPulled, fmt.Sprintf("Container image %q already present on machine", c.Image))
	return found, nil
}

// fetch pulls the image unless it is in backoff.
func (p *Puller) fetch(ctx context.Context, name Name, r *request, problems error) (string, error) {
	key := backoffKey{uid: r.pod.UID, image: name.String()}
	p.mu.Lock()
	left, why := p.backoffs.remaining(key, time.Now())
	p.mu.Unlock()
	if left > 0 {
		message := fmt.Sprintf("Back-off pulling image %q", r.image)
		p.cfg.Events.Normal(r.pod, eventBackOff, message)
		return "", &Error{Reason: ReasonBackOff, Message: message + ": " + why, RetryAfter: left}
	}

	p.cfg.Events.Normal(r.pod, eventPulling, fmt.Sprintf("Pulling image %q", r.image))
	begun := time.Now()
	imageRef, took, err := p.join(ctx, flightKey{image: name.String(), sum: hashCredentials(r.credentials)}, r)
	if err == nil {
		p.mu.Lock()
		delete(p.backoffs, key)
		p.mu.Unlock()
		p.cfg.Events.Normal(r.pod, eventPulled, fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting)",
			r.image, took.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond)))
		return imageRef, nil
	}
	if ctx.Err() != nil {
		return "", err
	}
	return "", p.pullFailed(key, r, withSecretErrors(err, problems))
}

// pullFailed reports a failed pull and starts or extends its backoff.
func (p *Puller) pullFailed(key backoffKey, r *request, err error) *Error {
	failure := &Error{Reason: pullReason(err), Message: err.Error(), Err: err}
	// An unavailable runtime is not a failure of the image. The caller's own backoff
	// applies.
	if !errors.Is(err, container.ErrUnavailable) {
		p.mu.Lock()
		failure.RetryAfter = p.backoffs.fail(key, time.Now(), failure.Error())
		p.mu.Unlock()
	}
	p.cfg.Events.Warning(r.pod, eventFailed, fmt.Sprintf("Failed to pull image %q: %v", r.image, err))
	return failure
}
