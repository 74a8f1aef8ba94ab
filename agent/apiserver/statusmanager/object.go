package statusmanager

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// heardLimit is how long a mirror pod that was created is taken to be there
// although a set of the pod source lacks it: the set may be older, or somebody
// deleted the mirror pod before it was told.
const heardLimit = time.Minute

// object is what is known of one name in the API. It belongs to the loop.
type object struct {
	key types.NamespacedName

	told       *v1.Pod   // by the pod source, nil if the name is not in its set
	heard      *v1.Pod   // from an answer, as long as it is newer than told
	heardUntil time.Time // when heard is given up; zero as long as no set lacks it
	gone       types.UID // the server said that this one is gone
	goneUntil  time.Time // when that is doubted, zero for never
	doubt      apiclient.Backoff

	taken   *v1.PodStatus // the agent's status that the server took last
	residue []byte        // the patch that is left of taken, since the server does not keep it

	busy  bool      // a request is under way
	since time.Time // since when a patch waits for further changes
	until time.Time // no request before: the last was refused
	wait  apiclient.Backoff
	said  string // the refusal that was logged last

	// A status that the server had taken and somebody else changed is put
	// right, but not in a race.
	amend      apiclient.Backoff
	amendAfter time.Time

	done    bool
	asked   view   // what was looked at last
	plan    action // what was decided then
	planned bool   // false: decide again
}

// amends says whether the plan puts right what somebody else changed.
func (o *object) amends() bool {
	return o.plan.verb == patching && o.asked.ours != nil && o.asked.ours == o.taken
}

// current is the newest that is known of the API's pod, nil if there is none.
func (o *object) current(now time.Time) *v1.Pod {
	if !o.goneUntil.IsZero() && !now.Before(o.goneUntil) {
		o.believe()
	}
	if o.heard != nil && !o.heardUntil.IsZero() && !now.Before(o.heardUntil) {
		o.heard = nil
	}
	switch {
	case o.heard != nil:
		return o.heard
	case o.told != nil && o.told.UID != o.gone:
		return o.told
	}
	return nil
}

// tell takes what the pod source has under the name, nil if nothing.
func (o *object) tell(p *v1.Pod, now time.Time) {
	was := o.told
	o.told = p
	if p == nil || p.UID != o.gone {
		o.believe()
		o.doubt.Reset()
	}
	if p != nil && was != nil && p.UID != was.UID {
		o.until, o.said = time.Time{}, "" // it was another pod that the server refused
		o.wait.Reset()
	}
	switch {
	case o.heard == nil:
	case p == nil && was != nil && was.UID == o.heard.UID:
		o.heard = nil // it was told, and is deleted
	case p == nil:
		if o.heardUntil.IsZero() {
			o.heardUntil = now.Add(heardLimit)
		}
	case !older(p, o.heard):
		o.heard = nil
	case p.UID == o.heard.UID:
		o.heardUntil = time.Time{}
	}
}

// hear takes what a request was answered with.
func (o *object) hear(p *v1.Pod) {
	if p.UID == "" || p.UID == o.gone {
		return
	}
	if o.heard != nil && older(p, o.heard) || o.told != nil && o.told.UID == p.UID && !older(o.told, p) {
		return
	}
	o.heard, o.heardUntil = p, time.Time{}
}

// believe takes the pod source's word for what is there.
func (o *object) believe() { o.gone, o.goneUntil = "", time.Time{} }

// lose takes that the server has no pod of this UID any more. That it has none
// to delete is doubted while the pod source has it: an API server that has just
// started says so to a node of a pod that its admission does not know yet
// (plugin/pkg/admission/noderestriction).
func (o *object) lose(uid types.UID, unknown bool, now time.Time) {
	o.gone, o.goneUntil = uid, time.Time{}
	if unknown {
		o.goneUntil = now.Add(o.doubt.Next())
	}
	if o.heard != nil && o.heard.UID == uid {
		o.heard = nil
	}
}

// older says whether a is surely an older state than b. Versions of one
// resource can be compared (KEP-5504); what cannot be is not older.
func older(a, b *v1.Pod) bool {
	n, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && n < 0
}
