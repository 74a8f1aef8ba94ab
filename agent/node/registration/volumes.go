package registration

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

// dropVolumes takes from after, which is to be sent, what a kubelet has told of
// volumes of which nothing is on this node any more: other nodes get them only
// then. Its CSINode is deleted before the annotation that tells of it goes.
func (r *Registrar) dropVolumes(ctx context.Context, after *v1.Node) {
	volumes, drivers := nodestatus.HasVolumes(after)
	if r.cfg.VolumesLeft == nil || !volumes && !drivers {
		return
	}
	left, err := r.cfg.VolumesLeft()
	if err != nil {
		r.cfg.Log.Warn("volumes left on the node are not known", "error", err)
	}
	if left || err != nil {
		return
	}
	nodestatus.DropVolumes(after, drivers && r.dropCSINode(ctx))
}

// dropCSINode reports whether the drivers of a kubelet are gone from the API
// server. It is asked once, unless it does not answer.
func (r *Registrar) dropCSINode(ctx context.Context) bool {
	if r.noCSINode {
		return true
	}
	err := r.cfg.API.Delete(ctx, apiclient.CSINodes, "", r.cfg.NodeName, metav1.DeleteOptions{})
	switch {
	case err == nil:
		r.cfg.Log.Info("CSI drivers of a kubelet are deregistered", "node", r.cfg.NodeName)
	case apierrors.IsNotFound(err):
	case apierrors.IsForbidden(err):
		r.cfg.Log.Warn("CSI drivers of a kubelet stay registered", "error", err,
			"remedy", "delete the CSINode "+r.cfg.NodeName)
	default:
		r.cfg.Log.Debug("CSINode is to be deleted again", "error", err)
		return false
	}
	r.noCSINode = true
	return true
}
