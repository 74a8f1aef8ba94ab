package registration

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/wait"
)

// renew renews the node's lease until ctx ends.
func (r *Registrar) renew(ctx context.Context) {
	period := r.cfg.RenewInterval
	if period == 0 {
		period = r.cfg.LeaseDuration / 4
	}
	said := r.outage("renew lease")
	// A failed renewal is retried well before the lease expires.
	backoff := wait.Backoff{First: period / 10, Max: period}
	var held *coordinationv1.Lease // as the server has it, nil if unknown
	renewed := time.Now()          // when the last successful attempt began
	for {
		began := time.Now()
		again := r.cfg.Recovered.Next()
		var err error
		held, err = r.renewOnce(ctx, held)
		if gaveUp(ctx, err) {
			return
		}
		said.Record(err)
		if err != nil {
			if !backoff.Wait(ctx, again) {
				return
			}
			continue
		}
		// Responses may be late. The server handled the previous renewal after its
		// attempt began, and this one before its response came.
		if time.Since(renewed) > r.cfg.LeaseDuration {
			wait.Notify(r.reportNow) // the node controller may have set the node to unknown
		}
		renewed = began
		backoff.Reset()
		if !wait.Pause(ctx, wait.Around(period, 25)) {
			return
		}
	}
}

// renewOnce renews the lease with a patch of held, which it reads from the API
// server if it is nil. It returns the lease as the server has it afterwards, or nil
// if the next attempt must read it again.
func (r *Registrar) renewOnce(ctx context.Context, held *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.LeaseDuration)
	defer cancel()
	desired := nodestatus.Lease(r.cfg.NodeName, r.UID(), r.cfg.NodeName, int32(r.cfg.LeaseDuration/time.Second), time.Now())
	if held == nil {
		held = new(coordinationv1.Lease)
		err := r.cfg.API.Get(ctx, apiclient.Leases, v1.NamespaceNodeLease, r.cfg.NodeName, held)
		if apierrors.IsNotFound(err) {
			err = r.cfg.API.Create(ctx, apiclient.Leases, v1.NamespaceNodeLease, "", "", desired, held)
			if err == nil {
				return held, nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
	patch, err := nodestatus.LeasePatch(held, desired)
	if err != nil {
		return nil, err
	}
	var got coordinationv1.Lease
	err = r.cfg.API.Patch(ctx, apiclient.Leases, v1.NamespaceNodeLease, r.cfg.NodeName, "", types.MergePatchType, patch, &got)
	switch {
	case err == nil:
		return &got, nil
	case apierrors.IsNotFound(err):
		return nil, err // deleted: create it again
	}
	return held, err
}
