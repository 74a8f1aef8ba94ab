package statusmanager

import (
	"bytes"
	"time"
)

// What was refused is tried again after at most refusedLimit, and what looks
// like a fault of the server after faultLimit. Statuses that somebody else
// keeps changing are put right more and more rarely too.
const (
	refusedLimit = 5 * time.Minute
	faultLimit   = 30 * time.Second
	// goneLimit is how long a pod is first taken for gone that the server did
	// not know when it was asked to delete it.
	goneLimit = 10 * time.Second
)

// settle takes what became of a request.
func (l *loop) settle(res *result, now time.Time) {
	o := res.object
	o.busy, o.planned = false, false
	if res.pod != nil {
		o.hear(res.pod)
	}
	if res.gone != "" {
		o.lose(res.gone, res.unknown, now)
	}
	if res.err != nil {
		l.fail(o, res, now)
		return
	}
	l.outage.succeed(now)
	o.until = time.Time{}
	if res.verb != removing { // which may have to wait for somebody's finalizer
		o.said = ""
		o.wait.Reset()
	}
	switch {
	case res.verb == patching && res.pod != nil:
		l.took(o, res, now)
	case res.verb == creating:
		l.Log.Info("the API server has a mirror pod", "pod", o.key.String(), "podUID", string(res.pod.UID))
	case res.verb == removing:
		l.Log.Info("the API server takes the deletion of a pod", "pod", o.key.String(), "podUID", string(res.gone))
	}
}

// took keeps that the server has a status now, and what it left of it: what it
// answers with has all of the patch but what it does not keep. Whatever else
// differs was changed by somebody between the pod that the patch was made for
// and the patch, such as the readiness of a node's pods that the node lifecycle
// controller takes away, and is put right.
func (l *loop) took(o *object, res *result, now time.Time) {
	if o.taken != res.ours {
		o.amend.Reset()
		o.amendAfter = time.Time{}
	}
	known := o.residue
	o.taken, o.residue = res.ours, nil
	if res.pod.UID != res.api.UID {
		return // an answer without a pod tells nothing
	}
	after := res.view
	after.api = res.pod
	left := after.left(now)
	if left == nil || !bytes.Equal(left, res.patch) && !bytes.Equal(left, known) {
		return
	}
	o.residue = left
	if !bytes.Equal(left, known) {
		l.Log.Debug("the API server does not keep all of a pod's status", "pod", o.key.String(), "left", string(o.residue))
	}
}

// fail takes that a request did not do what it should.
func (l *loop) fail(o *object, res *result, now time.Time) {
	told := answered(res.err)
	if told {
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

// say logs why a pod is not reported, and the same reason only once.
func (l *loop) say(o *object, err error) {
	if text := err.Error(); o.said != text {
		o.said = text
		l.Log.Warn("pod is not reported to the API server", "pod", o.key.String(), "error", err)
	}
}
