package statusmanager

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

const (
	// flights is the maximum number of concurrent requests.
	flights = 4
	// resyncEach is the interval between complete comparisons, plus up to a tenth
	// of jitter.
	resyncEach = 10 * time.Minute
)

// loop is the state of one Run. Only its goroutine uses it.
type loop struct {
	*Manager

	objects  map[types.NamespacedName]*object
	results  chan result // has room for all requests
	inFlight int
	outage   outage
	resync   time.Time
	next     time.Time // when to sync again without a trigger

	// Memory that is reused by the next sync.
	byUID   map[types.UID]*v1.PodStatus
	statics map[types.NamespacedName]pod.Entry
	queue   []attempt
}

// Run syncs pods until ctx ends, and returns context.Cause(ctx) after the last
// request has returned. Only one Run may be active at a time. Each starts with the
// last set of SetPods and no other state.
func (r *Manager) Run(ctx context.Context) error {
	l := &loop{
		Manager: r,
		outage: outage{said: apiclient.NewOutage(r.Log,
			"cannot update pod statuses on API server", "updating pod statuses on API server again")},
		objects: make(map[types.NamespacedName]*object),
		results: make(chan result, flights),
		byUID:   make(map[types.UID]*v1.PodStatus),
		statics: make(map[types.NamespacedName]pod.Entry),
	}
	defer func() {
		for ; l.inFlight > 0; l.inFlight-- {
			<-l.results
		}
	}()
	r.mu.Lock()
	r.fresh = true
	r.mu.Unlock()
	l.resync = time.Now().Add(wait.Longer(resyncEach))
	timer := time.NewTimer(0)
	defer timer.Stop()
	var again <-chan struct{}
	for {
		if again == nil {
			again = r.Recovered.Next()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again:
			again = nil
			l.recovered(time.Now())
		case <-r.Changed:
		case <-r.Trigger:
		case <-timer.C:
		case res := <-l.results:
			l.inFlight--
			if ctx.Err() == nil {
				l.handleResult(&res, time.Now())
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := time.Now()
		l.sync(now)
		l.start(ctx, now)
		timer.Reset(max(0, l.next.Sub(now)))
	}
}

// recovered makes waiting requests due, since the server answers again. A server that has
// just started may have rejected requests because its authorizer had no rules yet, so the
// backoff after a rejection is reset.
func (l *loop) recovered(now time.Time) {
	l.outage.recovered(now)
	for _, o := range l.objects {
		o.refusals.Reset()
		o.until = time.Time{}
	}
}

// by schedules the next sync for t at the latest.
func (l *loop) by(t time.Time) {
	if t.Before(l.next) {
		l.next = t
	}
}

// sync collects the current state, decides for each name, and queues the actions
// that are due.
func (l *loop) sync(now time.Time) {
	l.queue = l.queue[:0]
	if !now.Before(l.resync) {
		l.resync = now.Add(wait.Longer(resyncEach))
		for _, o := range l.objects {
			o.planned = false
			o.believe()
			if now.Sub(o.amendAfter) > refusedLimit {
				o.amend.Reset() // no client has changed it for a while
			}
		}
	}
	l.next = l.resync
	if l.outage.on() && (l.inFlight > 0 || now.Before(l.outage.until)) {
		// Changes are processed when requests are possible again.
		if l.inFlight == 0 {
			l.by(l.outage.until)
		}
		return
	}
	set, ready, fresh := l.newest()
	if !ready {
		return
	}
	if fresh {
		l.absorb(set, now)
	}
	// Call Done before List: List has the last status of a pod that is done.
	for _, o := range l.objects {
		p := o.current(now)
		o.done = p != nil && p.DeletionTimestamp != nil && !pod.IsMirror(p) && l.Done(p.UID)
	}
	l.list()
	nodeUID := l.NodeUID()
	for key, o := range l.objects {
		if o.busy {
			continue
		}
		v := l.view(o, nodeUID, now)
		if v.api == nil && v.static == nil && o.sourcePod == nil {
			delete(l.objects, key)
			continue
		}
		l.decideName(o, v, now)
	}
}

// absorb updates the objects from a set of the pod source.
func (l *loop) absorb(set []*v1.Pod, now time.Time) {
	byName := make(map[types.NamespacedName]*v1.Pod, len(set))
	for _, p := range set {
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		byName[key] = p
		l.object(key)
	}
	for key, o := range l.objects {
		o.setSourcePod(byName[key], now)
	}
}

func (l *loop) object(key types.NamespacedName) *object {
	o := l.objects[key]
	if o == nil {
		o = &object{
			key: key, refusals: wait.Backoff{Max: refusedLimit}, faults: wait.Backoff{Max: faultLimit},
			amend: wait.Backoff{Max: refusedLimit}, doubt: wait.Backoff{First: goneLimit, Max: refusedLimit},
		}
		l.objects[key] = o
	}
	return o
}

// list indexes the agent's pods. Of two static pods of one name, the newer one
// (pod.Newer) is reported.
func (l *loop) list() {
	clear(l.byUID)
	clear(l.statics)
	for _, e := range l.List() {
		if !pod.IsStatic(e.Pod) {
			l.byUID[e.Pod.UID] = e.Status
			continue
		}
		key := types.NamespacedName{Namespace: e.Pod.Namespace, Name: e.Pod.Name}
		if other, ok := l.statics[key]; !ok || pod.Newer(e.Pod, other.Pod) {
			l.statics[key] = e
			l.object(key)
		}
	}
}

// view returns the input for the decision about one name.
func (l *loop) view(o *object, nodeUID types.UID, now time.Time) view {
	static := l.statics[o.key]
	v := view{api: o.current(now), static: static.Pod, done: o.done, nodeUID: nodeUID}
	if !o.goneUntil.IsZero() && o.sourcePod != nil {
		l.by(o.goneUntil)
	}
	if o.responsePod != nil && !o.responseUntil.IsZero() {
		l.by(o.responseUntil)
	}
	switch {
	case v.api != nil && !pod.IsMirror(v.api):
		v.ours = l.byUID[v.api.UID]
	case v.static != nil:
		v.ours = static.Status
	case v.api != nil:
		v.staticGone = l.StaticGone != nil && l.StaticGone(o.key.Namespace, o.key.Name)
	}
	return v
}

// decideName decides for one name and queues an action that is due.
func (l *loop) decideName(o *object, v view, now time.Time) {
	if !o.planned || o.asked != v {
		o.asked, o.planned = v, true
		o.plan = v.decide(o.unpersisted, now)
		if o.plan.refused != nil {
			l.say(o, o.plan.refused)
		}
	}
	if o.plan.verb == nothing {
		o.since = time.Time{}
		return
	}
	if o.since.IsZero() {
		o.since = now
	}
	if due := l.due(o); now.Before(due) {
		l.by(due)
		return
	}
	l.queue = append(l.queue, attempt{action: o.plan, view: v, object: o, key: o.key, lost: o.gone, since: o.since, began: now})
}

// due returns when an action may start.
func (l *loop) due(o *object) time.Time {
	due := o.since.Add(o.plan.after)
	if !o.plan.urgent {
		due = due.Add(l.Coalesce)
	}
	if o.amends() && due.Before(o.amendAfter) {
		due = o.amendAfter
	}
	if due.Before(o.until) {
		due = o.until
	}
	return due
}

// start sends the queued requests, urgent ones first, up to the concurrency limit.
// The others are queued again when a request returns.
func (l *loop) start(ctx context.Context, now time.Time) {
	slices.SortFunc(l.queue, func(a, b attempt) int {
		if a.urgent != b.urgent {
			if a.urgent {
				return -1
			}
			return 1
		}
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
	room := flights
	if l.outage.on() {
		room = 1
	}
	for _, a := range l.queue {
		if l.inFlight >= room {
			return
		}
		o := a.object
		if o.amends() {
			o.amendAfter = now.Add(o.amend.Next())
		}
		o.busy, o.since = true, time.Time{}
		l.inFlight++
		go func() { l.results <- l.act(ctx, a) }()
	}
}
