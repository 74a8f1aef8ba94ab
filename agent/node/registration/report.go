package registration

import (
	"context"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

// report sends what the node is like until ctx ends: what changed at once, and
// everything that differs in each Report.
func (r *Registrar) report(ctx context.Context) {
	said := r.outage("the node's status")
	var backoff apiclient.Backoff
	var due time.Time // of the next report whatever the node is like
	failed := false
	anew := false // what the server has may not be what it had last
	for {
		wait := jitter(r.cfg.Look)
		again := r.cfg.Recovered.Next()
		if now := time.Now(); !due.After(now) || r.differs(ctx) {
			err := r.send(ctx, anew)
			if gaveUp(ctx, err) {
				return
			}
			said.Note(err)
			failed = err != nil
			if anew = failed; failed {
				due, wait = time.Now(), backoff.Next()
			} else {
				backoff.Reset()
				due = time.Now().Add(jitter(r.cfg.Report))
			}
		}
		timer := time.NewTimer(wait)
		// While the server does nothing, changes wait for the next attempt.
		look := r.look
		if failed {
			look = nil
		} else {
			again = nil
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.news:
			due, anew = time.Now(), true
		case <-look:
		case <-again:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// differs says whether the node is no longer as the server had it last.
func (r *Registrar) differs(ctx context.Context) bool {
	r.looked()
	_, changed, _ := nodestatus.Update(r.Node(), r.cfg.Inputs(ctx)) // the error is told by send
	return changed
}

func (r *Registrar) looked() {
	if r.cfg.Looked != nil {
		r.cfg.Looked()
	}
}

// send brings the server's node up to date. What the server has is known from
// its last answer, and its next one tells of what others have changed: so it
// is asked only where that may have missed much.
func (r *Registrar) send(ctx context.Context, anew bool) error {
	if anew {
		if err := r.read(ctx); err != nil {
			return err
		}
	}
	before := r.Node()
	after, _, err := nodestatus.Update(before, r.cfg.Inputs(ctx))
	if err != nil {
		r.cfg.Log.Warn("a part of what the node is could not be found out", "error", err)
	}
	r.dropVolumes(ctx, after)
	if err := r.patch(ctx, before, after); err != nil {
		return err
	}
	r.tell(nodestatus.Events(before, after))
	return nil
}
