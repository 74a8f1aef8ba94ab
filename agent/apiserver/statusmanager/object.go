package statusmanager

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/tinylet/tinylet/agent/wait"
)

// responseLimit is how long a pod of a response is assumed to exist although a set of the
// pod source lacks it. The set may be older, or the pod may have been deleted before the
// source observed it.
const responseLimit = time.Minute

// object is the state of one name in the API. It belongs to the loop.
type object struct {
	key types.NamespacedName

	sourcePod     *v1.Pod   // from the pod source, nil if its set lacks the name
	responsePod   *v1.Pod   // from a response, as long as it is newer than sourcePod
	responseUntil time.Time // when responsePod is dropped; zero as long as no set lacks it
	gone          types.UID // the server reported this UID as gone
	goneUntil     time.Time // when gone is dropped; zero means not by time
	doubt         wait.Backoff

	accepted    *v1.PodStatus // the agent's status that the server accepted last
	unpersisted []byte        // the patch of the parts of accepted that the server did not store

	busy  bool      // a request is in flight
	since time.Time // since when an action is pending
	until time.Time // no request before, because the last was rejected
	said  string    // the error that was logged last

	// The waits after rejections and after faults. They have different bounds, so each
	// has its own backoff.
	refusals, faults wait.Backoff

	// An accepted status that another client changed is sent again, with backoff so
	// that the two do not overwrite each other in a loop.
	amend      wait.Backoff
	amendAfter time.Time

	done    bool
	asked   view   // the input of the last decision
	plan    action // the last decision
	planned bool   // false means decide again
}

// resetWaits makes the next failure wait as the first one does.
func (o *object) resetWaits() {
	o.refusals.Reset()
	o.faults.Reset()
}

// amends reports whether the plan sends an accepted status again, because another client
// changed it.
func (o *object) amends() bool {
	return o.plan.verb == patching && o.asked.ours != nil && o.asked.ours == o.accepted
}

// current returns the newest known pod in the API, nil if there is none.
func (o *object) current(now time.Time) *v1.Pod {
	if !o.goneUntil.IsZero() && !now.Before(o.goneUntil) {
		o.believe()
	}
	if o.responsePod != nil && !o.responseUntil.IsZero() && !now.Before(o.responseUntil) {
		o.responsePod = nil
	}
	switch {
	case o.responsePod != nil:
		return o.responsePod
	case o.sourcePod != nil && o.sourcePod.UID != o.gone:
		return o.sourcePod
	}
	return nil
}

// setSourcePod updates the pod of the pod source, nil if its set lacks the name.
func (o *object) setSourcePod(p *v1.Pod, now time.Time) {
	was := o.sourcePod
	o.sourcePod = p
	if p == nil || p.UID != o.gone {
		o.believe()
		o.doubt.Reset()
	}
	if p != nil && was != nil && p.UID != was.UID {
		o.until, o.said = time.Time{}, "" // the server rejected another pod
		o.resetWaits()
	}
	switch {
	case o.responsePod == nil:
	case p == nil && was != nil && was.UID == o.responsePod.UID:
		o.responsePod = nil // the source had it, and it was deleted
	case p == nil:
		if o.responseUntil.IsZero() {
			o.responseUntil = now.Add(responseLimit)
		}
	case !older(p, o.responsePod):
		o.responsePod = nil
	case p.UID == o.responsePod.UID:
		o.responseUntil = time.Time{}
	}
}

// setResponsePod stores the pod of a response, unless it is older than the known one.
func (o *object) setResponsePod(p *v1.Pod) {
	if p.UID == "" || p.UID == o.gone {
		return
	}
	if o.responsePod != nil && older(p, o.responsePod) || o.sourcePod != nil && o.sourcePod.UID == p.UID && !older(o.sourcePod, p) {
		return
	}
	o.responsePod, o.responseUntil = p, time.Time{}
}

// believe makes the pod source authoritative again for which pod exists.
func (o *object) believe() { o.gone, o.goneUntil = "", time.Time{} }

// setGone records that the server has no pod of this UID. If that results from
// NotFound in response to a delete, it holds only for a limited time while the pod
// source has the pod: an API server that has just started answers NotFound for a
// pod that its admission does not know yet (plugin/pkg/admission/noderestriction).
func (o *object) setGone(uid types.UID, unknown bool, now time.Time) {
	o.gone, o.goneUntil = uid, time.Time{}
	if unknown {
		o.goneUntil = now.Add(o.doubt.Next())
	}
	if o.responsePod != nil && o.responsePod.UID == uid {
		o.responsePod = nil
	}
}

// older reports whether a is certainly older than b. Resource versions of one
// resource are comparable (KEP-5504). Versions that are not comparable are not
// older.
func older(a, b *v1.Pod) bool {
	n, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && n < 0
}
