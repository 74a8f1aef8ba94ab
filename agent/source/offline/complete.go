package offline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/wait"
)

// maxCompleteBackoff is the longest interval between reads of missing objects. A recovered
// connection to the API server ends it.
const maxCompleteBackoff = 5 * time.Minute

// Complete makes Reader.Run read the objects that an admitted pod references and that the
// journal lacks. Call it after a sync of the pod: the first call for a pod since the start
// has an effect, and then only if the journal was started while the pod ran, as that of a
// kubelet's node is. The journal then lacks the objects that are read only when a container
// is created, such as Services. Complete does not block.
func (s *Store) Complete(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.pods[uid]
	if !h.runs() || h.complete {
		return
	}
	h.complete = true
	if len(s.missing(h.outline)) > 0 {
		s.incomplete[uid] = true
		s.completing.Set()
	}
}

// missing returns the objects that a pod references and that the journal lacks. It does not
// return the trust bundles, tokens and PersistentVolumes, which a running agent reads
// anyway. The caller holds the lock.
func (s *Store) missing(p *v1.Pod) []key {
	var out []key
	add := func(k key) {
		if s.objects[k] == nil && k.refers(p) {
			out = append(out, k)
		}
	}
	objects.EachReference(p, func(k objects.Key) { add(key{k.Kind, k.Namespace, k.Name}) })
	add(key{kindServices, v1.NamespaceDefault, ""})
	if p.Namespace != v1.NamespaceDefault {
		add(key{kindServices, p.Namespace, ""})
	}
	return out
}

// Run reads the missing objects of the pods that Store.Complete was called for, until ctx
// ends. It repeats a failed read after a backoff or as soon as the API server is reachable
// again.
func (r *Reader) Run(ctx context.Context, recovered apiclient.Recoveries) error {
	backoff := wait.Backoff{Max: maxCompleteBackoff}
	for {
		again := recovered.Next()
		if err := r.complete(ctx); err != nil {
			r.store.config.Log.Debug("cannot read objects for start without network", "error", err)
			if !backoff.Wait(ctx, again) {
				return nil
			}
			continue
		}
		backoff.Reset()
		select {
		case <-r.store.completing:
		case <-ctx.Done():
			return nil
		}
	}
}

// complete reads the missing objects of all incomplete pods. It stops at an error of the
// connection; a pod of which the API server refuses an object does not keep the others waiting.
// An object that does not exist is not missing.
func (r *Reader) complete(ctx context.Context) error {
	var refused error
	for _, uid := range r.store.incompletePods() {
		err := r.completePod(ctx, uid)
		switch {
		case err == nil:
			r.store.setComplete(uid)
		case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
			return err
		default:
			refused = errors.Join(refused, err)
		}
	}
	return refused
}

func (r *Reader) completePod(ctx context.Context, uid types.UID) error {
	for _, k := range r.store.missingOf(uid) {
		if err := r.readMissing(ctx, k); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("read %s of pod %s: %w", k, uid, err)
		}
	}
	return nil
}

func (r *Reader) readMissing(ctx context.Context, k key) (err error) {
	if k.kind == kindServices {
		_, err = r.Services(ctx, k.namespace)
		return err
	}
	_, err = r.get(ctx, objects.Key{Kind: k.kind, Namespace: k.namespace, Name: k.name})
	return err
}

func (s *Store) incompletePods() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.incomplete))
}

// missingOf returns the missing objects of a pod: none if it has ended or was forgotten.
func (s *Store) missingOf(uid types.UID) []key {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.pods[uid]; h.runs() {
		return s.missing(h.outline)
	}
	return nil
}

func (s *Store) setComplete(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.incomplete, uid)
}
