package registration

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// register retries until the node is registered. It returns false if ctx ends
// first.
func (r *Registrar) register(ctx context.Context) bool {
	r.recordEvents([]nodestatus.Event{nodestatus.Starting()})
	said := r.outage("register node")
	var backoff wait.Backoff
	for {
		again := r.cfg.Recovered.Next()
		err := r.tryRegister(ctx)
		if gaveUp(ctx, err) {
			return false
		}
		said.Record(err)
		if err == nil {
			r.cfg.Log.Info("registered node", "node", r.cfg.NodeName, "uid", r.UID())
			return true
		}
		if !backoff.Wait(ctx, again) {
			return false
		}
	}
}

func (r *Registrar) tryRegister(ctx context.Context) error {
	if !r.cfg.Register {
		return r.read(ctx)
	}
	r.cfg.BeforeUpdate()
	initial, err := nodestatus.Initial(r.cfg.Inputs(ctx))
	if err != nil {
		r.cfg.Log.Warn("cannot determine complete node status", "error", err)
	}
	var created v1.Node
	refused := r.cfg.API.Create(ctx, apiclient.Nodes, "", "", "", initial, &created)
	switch {
	case refused == nil:
		r.store(r.Node(), &created)
		r.recordEvents(nodestatus.Events(nil, &created))
		return nil
	// A node that exists can be registered without the permission to create it.
	case !apierrors.IsAlreadyExists(refused) && !apierrors.IsForbidden(refused):
		return refused
	}
	switch err := r.read(ctx); {
	case apierrors.IsNotFound(err):
		return refused
	case err != nil:
		return err
	}
	before := r.Node()
	desired, changed := nodestatus.Reconcile(before, initial)
	if !changed {
		return nil
	}
	return r.patch(ctx, before, desired)
}

// refreshLimit is the timeout of one read of the node over a slow link.
const refreshLimit = 20 * time.Second

// patch patches the server's node from before to after. It returns nil without a
// request if they do not differ, and an error if the node has another UID.
func (r *Registrar) patch(ctx context.Context, before, after *v1.Node) error {
	patch, err := nodestatus.Patch(before, after)
	if err != nil || patch == nil {
		return err
	}
	last := r.Node()
	var got v1.Node
	if err := r.cfg.API.Patch(ctx, apiclient.Nodes, "", r.cfg.NodeName, "status", types.StrategicMergePatchType, patch, &got); err != nil {
		return err
	}
	if got.UID != before.UID {
		return fmt.Errorf("patch node %q: it was deleted and created again", r.cfg.NodeName)
	}
	r.store(last, &got)
	return nil
}

func (r *Registrar) recordEvents(events []nodestatus.Event) {
	for _, e := range events {
		if e.Type == v1.EventTypeWarning {
			r.cfg.Events.Warning(pod.Ref{}, e.Reason, e.Message)
		} else {
			r.cfg.Events.Normal(pod.Ref{}, e.Reason, e.Message)
		}
	}
}
