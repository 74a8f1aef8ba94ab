package statusmanager

import (
	"bytes"
	"time"
)

// Upper bounds of the waits: refusedLimit after a rejected request, faultLimit after a
// fault of the server (see faulty). refusedLimit also bounds the waits before a status
// that another client keeps changing is sent again.
const (
	refusedLimit = 5 * time.Minute
	faultLimit   = 30 * time.Second
	// goneLimit bounds the first period for which a pod is assumed to be gone,
	// after the server answered NotFound to its deletion.
	goneLimit = 10 * time.Second
)

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
		o.resetWaits()
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
// store. The pod in the response has all of the patch except for that part. Any other
// difference was made by another client after the version that the patch is based on,
// such as by the node lifecycle controller, which marks a node's pods as not ready. Such
// a difference is patched again.
func (l *loop) recordAccepted(o *object, res *result, now time.Time) {
	if o.accepted != res.ours {
		o.amend.Reset()
		o.amendAfter = time.Time{}
	}
	known := o.unpersisted
	o.accepted, o.unpersisted = res.ours, nil
	if res.pod.UID != res.api.UID || res.ours == nil {
		return // the response has another pod or none, or the agent has no status
	}
	after := res.view
	after.api = res.pod
	remaining, _ := after.report(after.ours, nil, now) // without a patch after an error
	left := remaining.patch
	if left == nil || !bytes.Equal(left, res.patch) && !bytes.Equal(left, known) {
		return
	}
	o.unpersisted = left
	if !bytes.Equal(left, known) {
		l.Log.Debug("API server dropped parts of pod status", "pod", o.key.String(), "dropped", string(o.unpersisted))
	}
}

func (l *loop) fail(o *object, res *result, now time.Time) {
	responded := answered(res.err)
	if responded {
		l.outage.succeed(now)
	} else if l.outage.fail(res.began, now, res.err) {
		return
	}
	backoff := &o.refusals
	if faulty(res.err) {
		backoff = &o.faults
	}
	o.until = now.Add(backoff.Next())
	l.say(o, res.err)
}

// say logs why a pod is not synced, unless the reason is the one that was logged last.
func (l *loop) say(o *object, err error) {
	if text := err.Error(); o.said != text {
		o.said = text
		l.Log.Warn("cannot sync pod to API server", "pod", o.key.String(), "error", err)
	}
}
