package apiobjects

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// references is the set of references of a set of pods.
type references struct {
	objects    map[key]struct{} // from the API server
	locals     map[key]struct{} // only static pods reference them
	pods       map[types.UID]struct{}
	namespaces map[string]struct{}
	linked     map[string]struct{} // namespaces whose services appear in pods' environment variables
	bundles    map[bundleKey]struct{}
	claims     bool // some pod references a claim
}

// referencesOf returns the references of the pods. Terminal pods have none.
func referencesOf(pods []*v1.Pod) *references {
	w := &references{
		objects: make(map[key]struct{}), locals: make(map[key]struct{}), pods: make(map[types.UID]struct{}),
		namespaces: make(map[string]struct{}), linked: make(map[string]struct{}), bundles: make(map[bundleKey]struct{}),
	}
	for _, p := range pods {
		if phase := p.Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed {
			w.add(p)
		}
	}
	for k := range w.objects {
		delete(w.locals, k)
	}
	return w
}

func (w *references) add(p *v1.Pod) {
	w.pods[p.UID] = struct{}{}
	w.namespaces[p.Namespace] = struct{}{}
	w.namespaces[metav1.NamespaceDefault] = struct{}{} // namespace of the service kubernetes
	static := pod.IsStatic(p) || pod.IsMirror(p)
	if links := p.Spec.EnableServiceLinks; !static && (links == nil || *links) {
		w.linked[p.Namespace] = struct{}{}
	}
	for kind, name := range objects.References(p) {
		k := key{kind, p.Namespace, name}
		switch {
		case kind == objects.KindClass:
			k.namespace = ""
		case static:
			w.locals[k] = struct{}{}
			continue
		}
		w.objects[k] = struct{}{}
		w.claims = w.claims || kind == objects.KindClaim
	}
	for i := range p.Spec.Volumes {
		projected := p.Spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for _, source := range projected.Sources {
			if source.ClusterTrustBundle == nil {
				continue
			}
			if k, err := bundleOf(source.ClusterTrustBundle); err == nil {
				w.bundles[k] = struct{}{}
			}
		}
	}
}

// SetReferencingPods sets the pods whose referenced objects are needed. It must be called
// with the whole set whenever a pod is added, changed or removed. New objects
// are watched, and objects that are no longer referenced are dropped. What a
// new pod references is at least as new as this call at its next read: someone
// who creates a Service and then a pod expects the pod to see the Service. It
// does not block, and must not be called concurrently.
func (o *Objects) SetReferencingPods(pods []*v1.Pod) {
	w := referencesOf(pods)
	o.mu.Lock()
	fresh := referencesOf(slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { _, known := o.pods[p.UID]; return known }))
	o.pods = w.pods
	for k, e := range o.entries {
		if _, referenced := w.objects[k]; !referenced {
			delete(o.entries, k)
			e.drop()
		}
	}
	for k := range w.objects {
		if k.kind != objects.KindConfigMap && k.kind != objects.KindSecret || o.entries[k] != nil {
			continue
		}
		e := newEntry(k)
		_, e.readFailed = o.strayed[k]
		o.entries[k] = e
		o.jobs = append(o.jobs, func(ctx context.Context) { o.follow(ctx, e) })
	}
	o.locals = w.locals
	clear(o.strayed)
	o.mu.Unlock()
	o.notify()
	in := func(k key) bool { _, is := w.objects[k]; return is }
	o.unreferenced.retain(func(key) bool { return false })
	o.claims.retain(in)
	o.classes.retain(in)
	o.volumes.retain(func(key) bool { return w.claims })
	o.services.retain(func(namespace string) bool { _, is := w.namespaces[namespace]; return is })
	o.tokens.retain(func(k tokenKey) bool { _, is := w.pods[k.podUID]; return is })
	o.bundles.retain(func(k bundleKey) bool { _, is := w.bundles[k]; return is })
	o.invalidate(fresh)
}

// invalidate marks the cached values that new pods reference as stale.
func (o *Objects) invalidate(fresh *references) {
	if len(fresh.pods) == 0 {
		return
	}
	in := func(k key) bool { _, is := fresh.objects[k]; return is }
	o.claims.invalidate(in)
	o.classes.invalidate(in)
	o.volumes.invalidate(func(key) bool { return fresh.claims }) // only the claims name them
	o.services.invalidate(func(namespace string) bool { _, is := fresh.linked[namespace]; return is })
	o.bundles.invalidate(func(k bundleKey) bool { _, is := fresh.bundles[k]; return is })
}
