package image

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The wait after a failed pull (pkg/kubelet/kubelet.go: MaxContainerBackOff
// and the initial 10 s); it begins anew when nothing failed for twice the
// longest one.
const (
	backoffFirst = 10 * time.Second
	backoffMax   = 300 * time.Second
	backoffReset = 2 * backoffMax
)

// waitKey is what fails and waits: an image for a pod. A pod that is made
// anew does not wait for what the old one found.
type waitKey struct {
	uid   types.UID
	image string
}

type wait struct {
	delay time.Duration
	since time.Time
	why   string
}

// waits are the failed pulls of late.
type waits map[waitKey]wait

// left is how long a pull must still wait, and why.
func (w waits) left(key waitKey, now time.Time) (time.Duration, string) {
	last, ok := w[key]
	if !ok {
		return 0, ""
	}
	return max(last.delay-now.Sub(last.since), 0), last.why
}

// fail records a failed pull and answers how long to wait. What was forgotten
// by everybody goes.
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
