// Package image owns that a container's image is present before the
// container is created, and that images which nobody needs go when the disk
// fills: names, pull policies, credentials, how many pulls run at a time, the
// backoff between failed pulls, garbage collection, and the events and
// reasons that tell of all that. The rules are the kubelet's
// (pkg/kubelet/images/image_manager.go, image_gc_manager.go).
//
// Not built: imagePullCredentialsVerificationPolicy. An image that is present
// may be used by every pod of the node, as before Kubernetes 1.35.
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

// Config is what a Puller works with.
type Config struct {
	Images interface {
		ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
		PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (imageRef string, err error)
	}
	Events *event.Recorder
	// Serialize lets one pull run at a time: the kubelet's
	// serializeImagePulls. Without it every image has its own.
	Serialize bool
	// MaxParallel limits the pulls that run at a time where they are not
	// serialized: the kubelet's maxParallelImagePulls; 0 is no limit.
	MaxParallel int
	// QPS and Burst limit how many pulls begin in a second, and how many at
	// once after a time without any: the kubelet's registryPullQPS and
	// registryBurst. A pull waits where the kubelet fails it. QPS 0 is no limit.
	QPS, Burst int
	// Node is the node's docker config; nil is none.
	Node *NodeAuth
	// MirrorCredentials has the runtime show a registry's credentials to its
	// mirrors too.
	MirrorCredentials bool
	// Preloaded is asked for an image that is not present and need not be
	// pulled: it blocks while an archive with this image waits or is
	// imported, and says whether there was one. ref is the name in full. nil
	// is no archives.
	Preloaded func(ctx context.Context, ref string) (known bool)
	Log       *slog.Logger
}

// Puller makes images present. It is safe for concurrent use and has no
// goroutines of its own.
type Puller struct {
	cfg  Config
	turn chan struct{} // a slot for each pull; nil is no limit
	rate *rate.Limiter // of the pulls that begin; nil is no limit

	mu      sync.Mutex
	flights map[flightKey]*flight
	waits   waits
}

// NewPuller makes a puller; nothing is started.
func NewPuller(c Config) *Puller {
	p := &Puller{cfg: c, flights: make(map[flightKey]*flight), waits: make(waits)}
	switch {
	case c.Serialize:
		p.turn = make(chan struct{}, 1)
	case c.MaxParallel > 0:
		p.turn = make(chan struct{}, c.MaxParallel)
	}
	if c.QPS > 0 {
		p.rate = rate.NewLimiter(rate.Limit(c.QPS), max(c.Burst, 1))
	}
	return p
}

// Options are what Ensure may use beside the pod.
type Options struct {
	// Sandbox is the config of the pod's sandbox, for the runtime.
	Sandbox *runtimeapi.PodSandboxConfig
	// Secrets are the pod's pull secrets, those that exist, in their order.
	// They are not changed or kept.
	Secrets []*v1.Secret
	// Slow is told before what may take long: a pull, or the wait for an
	// archive. It must not block, and may be nil.
	Slow func()
}

// Ensure makes the image of container c present by its pull policy and
// answers the reference to create the container with. img is what the runtime
// says of it, nil after a pull: the runtime was not asked since. It blocks
// while a pull runs or waits for its turn, which only ctx limits. It fails
// with *Error, or with ctx's end.
func (p *Puller) Ensure(ctx context.Context, owner *v1.Pod, c *v1.Container, o Options) (imageRef string, img *runtimeapi.Image, err error) {
	ref := pod.RefOf(owner)
	name, err := ParseName(c.Image)
	if err != nil {
		message := fmt.Sprintf("image name %q of container %s is not valid: %v", c.Image, c.Name, err)
		p.cfg.Events.Warning(ref, eventInspect, message)
		return "", nil, &Error{Reason: ReasonInvalidName, Message: message, Err: err}
	}
	// The annotations are the runtime's to read, as from a kubelet.
	spec := &runtimeapi.ImageSpec{Image: withTag(c.Image, name), Annotations: owner.Annotations}

	if policy := policyOf(c, name); policy != v1.PullAlways {
		img, err := p.local(ctx, ref, c, name, spec, o)
		if img != nil || err != nil {
			return img.GetId(), img, err
		}
		if policy == v1.PullNever {
			message := fmt.Sprintf("image %q is not on this node and the pull policy is Never", c.Image)
			p.cfg.Events.Warning(ref, eventNeverPull, message)
			return "", nil, &Error{Reason: ReasonNeverPull, Message: message}
		}
	}
	o.slow()
	credentials, problems := p.credentials(name, o.Secrets)
	r := &request{pod: ref, image: c.Image, spec: spec, sandbox: o.Sandbox, credentials: credentials}
	imageRef, err = p.fetch(ctx, name, r, problems)
	return imageRef, nil, err
}

func (o *Options) slow() {
	if o.Slow != nil {
		o.Slow()
	}
}

// local finds the image on the node, if need be after an archive with it has
// been imported. It answers nil if there is none.
func (p *Puller) local(ctx context.Context, ref pod.Ref, c *v1.Container, name Name, spec *runtimeapi.ImageSpec, o Options) (*runtimeapi.Image, error) {
	img, err := p.present(ctx, ref, c, spec)
	if img != nil || err != nil || p.cfg.Preloaded == nil {
		return img, err
	}
	o.slow()
	if !p.cfg.Preloaded(ctx, name.String()) {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("wait for the archive of image %q: %w", c.Image, context.Cause(ctx))
	}
	return p.present(ctx, ref, c, spec)
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

// present answers the image, or nil if it is not there.
func (p *Puller) present(ctx context.Context, ref pod.Ref, c *v1.Container, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	found, err := p.cfg.Images.ImageStatus(ctx, spec)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		message := fmt.Sprintf("image %q cannot be inspected: %v", c.Image, err)
		p.cfg.Events.Warning(ref, eventInspect, message)
		return nil, &Error{Reason: ReasonInspect, Message: message, Err: err}
	}
	if found == nil {
		return nil, nil
	}
	p.cfg.Events.Normal(ref, eventPulled, fmt.Sprintf("Image %q is present already", c.Image))
	return found, nil
}

// fetch pulls unless the last failure was too recent.
func (p *Puller) fetch(ctx context.Context, name Name, r *request, problems error) (string, error) {
	key := waitKey{uid: r.pod.UID, image: name.String()}
	p.mu.Lock()
	left, why := p.waits.left(key, time.Now())
	p.mu.Unlock()
	if left > 0 {
		message := fmt.Sprintf("Waiting before image %q is pulled again", r.image)
		p.cfg.Events.Normal(r.pod, eventBackOff, message)
		return "", &Error{Reason: ReasonBackOff, Message: message + ": " + why, RetryAfter: left}
	}

	p.cfg.Events.Normal(r.pod, eventPulling, fmt.Sprintf("Pulling image %q", r.image))
	begun := time.Now()
	imageRef, took, err := p.join(ctx, flightKey{image: name.String(), sum: sumOf(r.credentials)}, r)
	if err == nil {
		p.mu.Lock()
		delete(p.waits, key)
		p.mu.Unlock()
		p.cfg.Events.Normal(r.pod, eventPulled, fmt.Sprintf("Pulled image %q in %v (%v with waiting)",
			r.image, took.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond)))
		return imageRef, nil
	}
	if ctx.Err() != nil {
		return "", err
	}
	return "", p.failed(key, r, withProblems(err, problems))
}

// failed tells of a pull that failed and has the next one wait.
func (p *Puller) failed(key waitKey, r *request, err error) *Error {
	failure := &Error{Reason: pullReason(err), Message: err.Error(), Err: err}
	// A runtime that went away says nothing about the image: its return is
	// not to be waited for longer than the caller does anyway.
	if !errors.Is(err, container.ErrUnavailable) {
		p.mu.Lock()
		failure.RetryAfter = p.waits.fail(key, time.Now(), failure.Error())
		p.mu.Unlock()
	}
	p.cfg.Events.Warning(r.pod, eventFailed, fmt.Sprintf("Image %q could not be pulled: %v", r.image, err))
	return failure
}
