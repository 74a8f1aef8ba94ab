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

// requestLimit is the timeout of a request, which occupies one of few slots.
const requestLimit = 2 * time.Minute

// attempt is one request. The goroutine of the request uses no mutable state of the loop.
type attempt struct {
	action
	view

	object *object // used by the loop only
	key    types.NamespacedName
	lost   types.UID // object.gone when the request was queued
	since  time.Time // since when the action is pending
	began  time.Time
}

// result is the result of an attempt.
type result struct {
	attempt

	pod  *v1.Pod   // the current pod of the server, nil if unknown
	gone types.UID // the UID of a pod that the server no longer has
	// unknown means that gone results from NotFound in response to a deletion.
	unknown bool
	err     error
}

// act sends the request and blocks until it is done.
func (r *Manager) act(ctx context.Context, a attempt) result {
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

func (r *Manager) sendStatus(ctx context.Context, res *result) {
	into := &v1.Pod{}
	uid := res.api.UID
	err := r.API.Patch(ctx, apiclient.Pods, res.key.Namespace, res.key.Name, "status", types.StrategicMergePatchType, res.patch, into)
	switch {
	case err == nil:
		res.pod = into
	case apierrors.IsNotFound(err):
		res.gone = uid
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// The UID may not match, or the status is invalid: read the pod to find out.
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

func (r *Manager) remove(ctx context.Context, res *result) {
	uid := res.api.UID
	err := r.API.Delete(ctx, apiclient.Pods, res.key.Namespace, res.key.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(uid)),
	})
	// A conflict means that another pod has the name.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		res.err = err
		return
	}
	res.gone, res.unknown = uid, apierrors.IsNotFound(err)
}

func (r *Manager) createMirror(ctx context.Context, res *result) {
	into := &v1.Pod{}
	err := r.API.Create(ctx, apiclient.Pods, res.key.Namespace, "", "", newMirrorPod(res.static, r.NodeName, res.nodeUID), into)
	if err == nil {
		res.pod = into
		return
	}
	res.err = err
	if !apierrors.IsAlreadyExists(err) {
		return
	}
	// The pod may be from an earlier request whose response was lost.
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

// answered reports whether err is the server's response concerning the pod. Other
// errors concern the connection or the whole server.
func answered(err error) bool {
	switch apiclient.StatusCode(err) {
	case 0, http.StatusUnauthorized, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}

// faulty reports whether err is no response or a 5xx, and not a rejection of the request.
func faulty(err error) bool {
	code := apiclient.StatusCode(err)
	return code == 0 || code >= http.StatusInternalServerError
}
