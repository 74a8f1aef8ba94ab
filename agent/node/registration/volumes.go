package registration

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

// dropVolumes removes from after, which is about to be sent, the volumes in use and
// the CSI drivers of an earlier kubelet, if nothing of these volumes is left on the
// node. Other nodes can attach the volumes only then. The CSINode is deleted before
// the annotation that lists its drivers.
func (r *Registrar) dropVolumes(ctx context.Context, after *v1.Node) {
	volumes, drivers := nodestatus.HasVolumes(after)
	if !volumes && !drivers {
		return
	}
	left, err := r.cfg.HasKubeletVolumes()
	if err != nil {
		r.cfg.Log.Warn("cannot list kubelet volumes on node", "error", err)
	}
	if left || err != nil {
		return
	}
	nodestatus.DropVolumes(after, drivers && r.dropCSINode(ctx))
}

// dropCSINode deletes the CSINode of an earlier kubelet, and reports whether the
// annotation may be removed. After a definite response, also a rejection, it sends
// no further request.
func (r *Registrar) dropCSINode(ctx context.Context) bool {
	if r.csiNodeDeleted {
		return true
	}
	err := r.cfg.API.Delete(ctx, apiclient.CSINodes, "", r.cfg.NodeName, metav1.DeleteOptions{})
	switch {
	case err == nil:
		r.cfg.Log.Info("deleted CSINode of earlier kubelet", "node", r.cfg.NodeName)
	case apierrors.IsNotFound(err):
	case apierrors.IsForbidden(err):
		r.cfg.Log.Warn("cannot delete CSINode of earlier kubelet", "error", err,
			"remedy", "delete the CSINode "+r.cfg.NodeName)
	default:
		r.cfg.Log.Debug("retry deletion of CSINode", "error", err)
		return false
	}
	r.csiNodeDeleted = true
	return true
}
