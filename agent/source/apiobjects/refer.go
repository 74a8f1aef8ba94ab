package apiobjects

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/wait"
)

// references is the set of references of a set of pods.
type references struct {
	objects    sets.Set[key] // from the API server
	locals     sets.Set[key] // only static pods reference them
	pods       sets.Set[types.UID]
	namespaces sets.Set[string]
	linked     sets.Set[string] // namespaces whose services appear in pods' environment variables
	bundles    sets.Set[bundleKey]
	claims     bool // some pod references a claim
}

// referencesOf returns the references of the pods. Terminal pods have none.
func referencesOf(pods []*v1.Pod) *references {
	w := &references{
		objects: sets.New[key](), locals: sets.New[key](), pods: sets.New[types.UID](),
		namespaces: sets.New[string](), linked: sets.New[string](), bundles: sets.New[bundleKey](),
	}
	for _, p := range pods {
		if !pod.IsTerminal(p.Status.Phase) {
			w.add(p)
		}
	}
	w.locals = w.locals.Difference(w.objects)
	return w
}

// fetches reports whether the pods may need an object that is fetched. Only claims
// name the volumes.
func (w *references) fetches(k key) bool {
	switch {
	case isWatched(k):
		return false
	case k.Kind == objects.KindVolume:
		return w.claims
	}
	return w.objects.Has(k)
}

func (w *references) add(p *v1.Pod) {
	w.pods.Insert(p.UID)
	w.namespaces.Insert(p.Namespace, metav1.NamespaceDefault) // the latter has the service kubernetes
	static := pod.IsStatic(p) || pod.IsMirror(p)
	if links := p.Spec.EnableServiceLinks; !static && (links == nil || *links) {
		w.linked.Insert(p.Namespace)
	}
	objects.EachReference(p, func(k key) {
		if static && k.Kind != objects.KindClass {
			w.locals.Insert(k)
			return
		}
		w.objects.Insert(k)
		w.claims = w.claims || k.Kind == objects.KindClaim
	})
	for source := range objects.TrustBundles(p) {
		if k, err := bundleOf(source); err == nil {
			w.bundles.Insert(k)
		}
	}
}

// SetReferencingPods sets the pods whose referenced objects are needed. It must be called
// with the whole set whenever a pod is added, changed or removed. New objects
// are watched, and objects that are no longer referenced are dropped. What a
// new pod references is fetched again at its next read: a Service that was created
// before a pod must be visible in the pod. SetReferencingPods does not block, and
// must not be called concurrently.
func (o *Objects) SetReferencingPods(pods []*v1.Pod) {
	w := referencesOf(pods)
	o.mu.Lock()
	fresh := referencesOf(slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return o.pods.Has(p.UID) }))
	o.pods = w.pods
	for k, e := range o.entries {
		if !w.objects.Has(k) {
			delete(o.entries, k)
			e.drop()
		}
	}
	for k := range w.objects {
		if !isWatched(k) || o.entries[k] != nil {
			continue
		}
		e := newEntry(k)
		e.readFailed = o.strayed.Has(k)
		o.entries[k] = e
		o.jobs = append(o.jobs, func(ctx context.Context) { o.follow(ctx, e) })
	}
	o.locals = w.locals
	clear(o.strayed)
	o.mu.Unlock()
	wait.Notify(o.wake)
	o.fetched.retain(w.fetches)
	o.services.retain(w.namespaces.Has)
	o.tokens.retain(func(k tokenKey) bool { return w.pods.Has(k.podUID) })
	o.bundles.retain(w.bundles.Has)
	o.fetched.invalidate(fresh.fetches)
	o.services.invalidate(fresh.linked.Has)
	o.bundles.invalidate(fresh.bundles.Has)
}
