package registration

import (
	"context"
	"time"

	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/wait"
)

// report reports the node status until ctx ends: at once when it changed, and each
// StatusReportInterval otherwise. A failed report is repeated after a backoff.
func (r *Registrar) report(ctx context.Context) {
	said := r.outage("report node status")
	var backoff wait.Backoff
	var due time.Time // when the next report is due, changed or not
	failed := false
	stale := false // the server's node may differ from the stored one
	for {
		r.cfg.BeforeUpdate()
		next := wait.Around(r.cfg.StatusUpdateInterval, 25)
		again := r.cfg.Recovered.Next()
		if now := time.Now(); !due.After(now) || r.statusChanged(ctx) {
			err := r.send(ctx, stale)
			if gaveUp(ctx, err) {
				return
			}
			said.Record(err)
			failed = err != nil
			if stale = failed; failed {
				due, next = time.Now(), backoff.Next()
			} else {
				backoff.Reset()
				due = time.Now().Add(wait.Around(r.cfg.StatusReportInterval, 25))
			}
		}
		timer := time.NewTimer(next)
		// While requests fail, changes wait for the next attempt.
		trigger := r.cfg.Trigger
		if failed {
			trigger = nil
		} else {
			again = nil
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.reportNow:
			due, stale = time.Now(), true
		case <-trigger:
		case <-again:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// statusChanged reports whether the node status differs from the server's last response.
func (r *Registrar) statusChanged(ctx context.Context) bool {
	_, changed, _ := nodestatus.Update(r.Node(), r.cfg.Inputs(ctx)) // send logs the error
	return changed
}

// send patches the server's node to the current state. The stored node is the
// server's last response, and the response to the patch has the changes of others.
// So the node is read first only if that may have missed much (stale).
func (r *Registrar) send(ctx context.Context, stale bool) error {
	if stale {
		if err := r.read(ctx); err != nil {
			return err
		}
	}
	before := r.Node()
	after, _, err := nodestatus.Update(before, r.cfg.Inputs(ctx))
	if err != nil {
		r.cfg.Log.Warn("cannot determine complete node status", "error", err)
	}
	r.dropVolumes(ctx, after)
	if err := r.patch(ctx, before, after); err != nil {
		return err
	}
	r.recordEvents(nodestatus.Events(before, after))
	if is := r.Node().Spec.Unschedulable; is != r.unschedulable {
		r.unschedulable = is
		r.recordEvents([]nodestatus.Event{nodestatus.Scheduling(r.cfg.NodeName, is)})
	}
	return nil
}
