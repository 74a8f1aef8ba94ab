package image

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The backoff after a failed pull (pkg/kubelet/kubelet.go: imageBackOffPeriod and
// MaxImageBackOff). It starts again with backoffFirst if the pull has not failed for more
// than backoffReset.
const (
	backoffFirst = 10 * time.Second
	backoffMax   = 300 * time.Second
	backoffReset = 2 * backoffMax
)

// backoffKey identifies a backoff: an image of a pod. A pod that is created again
// has another UID and does not inherit the backoff of the old one.
type backoffKey struct {
	uid   types.UID
	image string
}

type backoffEntry struct {
	delay     time.Duration
	failedAt  time.Time
	lastError string
}

// backoffs holds the backoffs of recently failed pulls.
type backoffs map[backoffKey]backoffEntry

// remaining returns the remaining backoff of a pull, 0 if there is none, and the
// last failure.
func (w backoffs) remaining(key backoffKey, now time.Time) (time.Duration, string) {
	last := w[key]
	return max(last.delay-now.Sub(last.failedAt), 0), last.lastError
}

// fail records a failed pull and returns the delay before the next one. It
// also removes the backoffs that are older than backoffReset.
func (w backoffs) fail(key backoffKey, now time.Time, why string) time.Duration {
	maps.DeleteFunc(w, func(_ backoffKey, old backoffEntry) bool { return now.Sub(old.failedAt) > backoffReset })
	delay := min(max(2*w[key].delay, backoffFirst), backoffMax)
	w[key] = backoffEntry{delay: delay, failedAt: now, lastError: why}
	return delay
}
