package statusmanager

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod"
)

// requestLimit ends a request that nobody ends: it holds one of few places.
const requestLimit = 2 * time.Minute

// attempt is one request. It shares nothing that changes with the loop.
type attempt struct {
	action
	view

	object *object // only for the loop
	key    types.NamespacedName
	lost   types.UID // what is gone, or only held by somebody's finalizer
	since  time.Time // since when it is due
	began  time.Time
}

// result is what became of an attempt.
type result struct {
	attempt

	pod  *v1.Pod   // as the server has it now, nil if it did not say
	gone types.UID // the server has no such pod any more
	// unknown says that this is because it did not know the pod to delete.
	unknown bool
	err     error
}

// act makes the request and blocks for it.
func (r *Reporter) act(ctx context.Context, a attempt) result {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	res := result{attempt: a}
	switch a.verb {
	case patching:
		r.sendStatus(ctx, &res)
	case removing:
		r.remove(ctx, &res)
	case creating:
		r.createMirror(ctx, &res)
	case nothing:
	}
	return res
}

func (r *Reporter) sendStatus(ctx context.Context, res *result) {
	into := &v1.Pod{}
	uid := res.api.UID
	err := r.API.Patch(ctx, apiclient.Pods, res.key.Namespace, res.key.Name, "status", types.StrategicMergePatchType, res.patch, into)
	switch {
	case err == nil:
		res.pod = into
	case apierrors.IsNotFound(err):
		res.gone = uid
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// The UID did not match, or something else: only the pod tells.
		res.err = err
		into = &v1.Pod{}
		switch got := r.API.Get(ctx, apiclient.Pods, res.key.Namespace, res.key.Name, into); {
		case apierrors.IsNotFound(got), got == nil && into.UID != uid:
			res.gone, res.err = uid, nil
		case got == nil:
			res.pod = into
		default:
			res.err = errors.Join(err, got)
		}
	default:
		res.err = err
	}
}

func (r *Reporter) remove(ctx context.Context, res *result) {
	uid := res.api.UID
	err := r.API.Delete(ctx, apiclient.Pods, res.key.Namespace, res.key.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(uid)),
	})
	// A conflict says that another pod has the name.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		res.err = err
		return
	}
	res.gone, res.unknown = uid, apierrors.IsNotFound(err)
}

func (r *Reporter) createMirror(ctx context.Context, res *result) {
	into := &v1.Pod{}
	err := r.API.Create(ctx, apiclient.Pods, res.key.Namespace, "", "", mirrorOf(res.static, r.NodeName, res.nodeUID), into)
	if err == nil {
		res.pod = into
		return
	}
	res.err = err
	if !apierrors.IsAlreadyExists(err) {
		return
	}
	// It may be the one of a request whose answer was lost.
	into = &v1.Pod{}
	if got := r.API.Get(ctx, apiclient.Pods, res.key.Namespace, res.key.Name, into); got != nil {
		if !apierrors.IsNotFound(got) {
			res.err = errors.Join(err, got)
		}
		return
	}
	if pod.IsMirror(into) && into.Spec.NodeName == r.NodeName && into.UID != res.lost {
		res.pod, res.err = into, nil
	}
}

// answered says whether an error is the server's word about the pod. Others
// are of the way to the server, or of the server as a whole.
func answered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusUnauthorized, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}

// faulty says whether the server failed rather than refused.
func faulty(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError
}
