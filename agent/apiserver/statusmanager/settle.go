package statusmanager

import (
	"bytes"
	"time"
)

// Upper bounds of the waits: refusedLimit after a rejected request, faultLimit
// after an apparent fault of the server. refusedLimit also bounds the waits before
// a status that someone else keeps changing is re-applied.
const (
	refusedLimit = 5 * time.Minute
	faultLimit   = 30 * time.Second
	// goneLimit bounds the first period for which a pod is assumed to be gone,
	// after the server answered NotFound to its deletion.
	goneLimit = 10 * time.Second
)

// handleResult handles the result of a request.
func (l *loop) handleResult(res *result, now time.Time) {
	o := res.object
	o.busy, o.planned = false, false
	if res.pod != nil {
		o.setResponsePod(res.pod)
	}
	if res.gone != "" {
		o.setGone(res.gone, res.unknown, now)
	}
	if res.err != nil {
		l.fail(o, res, now)
		return
	}
	l.outage.succeed(now)
	o.until = time.Time{}
	if res.verb != removing { // a deletion may have to wait for a finalizer
		o.said = ""
		o.wait.Reset()
	}
	switch {
	case res.verb == patching && res.pod != nil:
		l.recordAccepted(o, res, now)
	case res.verb == creating:
		l.Log.Info("created mirror pod", "pod", o.key.String(), "podUID", string(res.pod.UID))
	case res.verb == removing:
		l.Log.Info("deleted pod from API server", "pod", o.key.String(), "podUID", string(res.gone))
	}
}

// recordAccepted records the status that the server accepted, and the part that it did not
// store. The pod in the response has all of the patch except for that part. Any
// other difference was made by someone else after the pod that the patch is based
// on, such as the node lifecycle controller, which marks a node's pods as not
// ready. It is re-applied.
func (l *loop) recordAccepted(o *object, res *result, now time.Time) {
	if o.accepted != res.ours {
		o.amend.Reset()
		o.amendAfter = time.Time{}
	}
	known := o.unpersisted
	o.accepted, o.unpersisted = res.ours, nil
	if res.pod.UID != res.api.UID {
		return // a response without the pod is useless
	}
	after := res.view
	after.api = res.pod
	left := after.unpersisted(now)
	if left == nil || !bytes.Equal(left, res.patch) && !bytes.Equal(left, known) {
		return
	}
	o.unpersisted = left
	if !bytes.Equal(left, known) {
		l.Log.Debug("API server dropped parts of pod status", "pod", o.key.String(), "dropped", string(o.unpersisted))
	}
}

// fail handles a request that failed.
func (l *loop) fail(o *object, res *result, now time.Time) {
	responded := answered(res.err)
	if responded {
		l.outage.succeed(now)
	} else if l.outage.fail(res.began, now, res.err) {
		return
	}
	o.wait.Max = refusedLimit
	if faulty(res.err) {
		o.wait.Max = faultLimit
	}
	o.until = now.Add(o.wait.Next())
	l.say(o, res.err)
}

// say logs why a pod is not synced, but the same reason only once.
func (l *loop) say(o *object, err error) {
	if text := err.Error(); o.said != text {
		o.said = text
		l.Log.Warn("cannot sync pod to API server", "pod", o.key.String(), "error", err)
	}
}
