package image

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The backoff after a failed pull (pkg/kubelet/kubelet.go:
// MaxContainerBackOff and the initial 10 s). It restarts at backoffFirst when
// no pull failed for twice the longest delay.
const (
	backoffFirst = 10 * time.Second
	backoffMax   = 300 * time.Second
	backoffReset = 2 * backoffMax
)

// waitKey identifies a backoff: an image of a pod. A pod that is created again
// has another UID and does not inherit the backoff of the old one.
type waitKey struct {
	uid   types.UID
	image string
}

type wait struct {
	delay time.Duration
	since time.Time
	why   string
}

// waits holds the backoffs of recently failed pulls.
type waits map[waitKey]wait

// left returns the remaining backoff of a pull, 0 if there is none, and the
// last failure.
func (w waits) left(key waitKey, now time.Time) (time.Duration, string) {
	last, ok := w[key]
	if !ok {
		return 0, ""
	}
	return max(last.delay-now.Sub(last.since), 0), last.why
}

// fail records a failed pull and returns the delay before the next one. It
// also removes the backoffs that are older than backoffReset.
func (w waits) fail(key waitKey, now time.Time, why string) time.Duration {
	for k, old := range w {
		if now.Sub(old.since) > backoffReset {
			delete(w, k)
		}
	}
	delay := backoffFirst
	if last, ok := w[key]; ok {
		delay = min(2*last.delay, backoffMax)
	}
	w[key] = wait{delay: delay, since: now, why: why}
	return delay
}
