package source

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// candidate is a pod that a source desires.
type candidate struct {
	source string
	pod    *v1.Pod
}

// livePod is a pod that the consumer has received.
type livePod struct {
	source    string
	sourcePod *v1.Pod // from the source
	pod       *v1.Pod // sent to the consumer
}

// conflict is a candidate that lost to another one with the same name or UID.
type conflict struct {
	loser, winner candidate
}

func (r conflict) message() string {
	what := "name"
	if r.loser.pod.UID == r.winner.pod.UID {
		what = "UID"
	}
	return fmt.Sprintf("not running pod %s with UID %s from source %s: pod %s with UID %s from source %s has the same %s",
		pod.RefOf(r.loser.pod), r.loser.pod.UID, r.loser.source,
		pod.RefOf(r.winner.pod), r.winner.pod.UID, r.winner.source, what)
}

// resolve selects the candidates that may run, in order: one for each full name
// and UID. A live pod of the same source stays. Otherwise the source of the live pod
// with that name keeps the name, also for a pod with another UID. Otherwise the first
// candidate wins.
func resolve(claims []candidate, live map[types.UID]*livePod) (winners []candidate, refused []conflict) {
	owner := make(map[string]string, len(live))
	for _, l := range live {
		owner[pod.RefOf(l.pod).FullName()] = l.source
	}
	ordered := slices.Clone(claims)
	slices.SortStableFunc(ordered, func(a, b candidate) int {
		return incumbency(b, owner, live) - incumbency(a, owner, live)
	})
	names := make(map[string]candidate, len(claims))
	uids := make(map[types.UID]candidate, len(claims))
	for _, c := range ordered {
		name := pod.RefOf(c.pod).FullName()
		winner, taken := names[name]
		if !taken {
			winner, taken = uids[c.pod.UID]
		}
		if taken {
			refused = append(refused, conflict{loser: c, winner: winner})
			continue
		}
		names[name], uids[c.pod.UID] = c, c
		winners = append(winners, c)
	}
	return winners, refused
}

func incumbency(c candidate, owner map[string]string, live map[types.UID]*livePod) int {
	l := live[c.pod.UID]
	switch {
	case l != nil && l.source == c.source && pod.RefOf(l.pod) == pod.RefOf(c.pod):
		return 2
	case owner[pod.RefOf(c.pod).FullName()] == c.source:
		return 1
	default:
		return 0
	}
}

// change is an Update and its effect on the live pods.
type change struct {
	Update
	live []*livePod // one for each pod
}

// diff returns the ordered changes from the live pods to the winners. All
// removals come first, since an added pod may have the name of a removed one.
func diff(winners []candidate, live map[types.UID]*livePod, now time.Time) []change {
	desired := make(map[types.UID]candidate, len(winners))
	sources := make([]string, 0, 4)
	for _, c := range winners {
		desired[c.pod.UID] = c
		if !slices.Contains(sources, c.source) {
			sources = append(sources, c.source)
		}
	}
	changes := removals(desired, live)
	for _, source := range sources {
		byOp := make(map[Op]*change)
		for _, c := range winners {
			if c.source != source {
				continue
			}
			op, next := compare(c, live[c.pod.UID], now)
			if op == "" {
				continue
			}
			if byOp[op] == nil {
				byOp[op] = &change{Update: Update{Op: op, Source: source}}
			}
			byOp[op].Pods = append(byOp[op].Pods, next.pod)
			byOp[op].live = append(byOp[op].live, next)
		}
		for _, op := range []Op{RESTORE, ADD, UPDATE, DELETE, RECONCILE} {
			if byOp[op] != nil {
				changes = append(changes, *byOp[op])
			}
		}
	}
	return changes
}

// removals returns the REMOVE changes: for pods that are no longer desired, and
// for pods that kept their UID and changed their name, which no update can do.
func removals(desired map[types.UID]candidate, live map[types.UID]*livePod) []change {
	bySource := make(map[string]*change)
	for uid, l := range live {
		if c, ok := desired[uid]; ok && pod.RefOf(c.pod) == pod.RefOf(l.pod) {
			continue
		}
		if bySource[l.source] == nil {
			bySource[l.source] = &change{Update: Update{Op: REMOVE, Source: l.source}}
		}
		bySource[l.source].Pods = append(bySource[l.source].Pods, l.pod)
		bySource[l.source].live = append(bySource[l.source].live, l)
	}
	var changes []change
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		c := bySource[source]
		slices.SortFunc(c.Pods, func(a, b *v1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
		changes = append(changes, *c)
	}
	return changes
}

// compare returns the operation for one candidate, or "" if nothing changed. A pod that the API
// server has unchanged after a RESTORE is a RECONCILE.
func compare(c candidate, old *livePod, now time.Time) (Op, *livePod) {
	if old == nil || pod.RefOf(old.pod) != pod.RefOf(c.pod) {
		op := ADD
		if c.source == pod.SourceRestore {
			op = RESTORE
		}
		return op, &livePod{source: c.source, sourcePod: c.pod, pod: mark(c, now.Format(time.RFC3339Nano))}
	}
	if old.sourcePod == c.pod && old.source == c.source {
		return "", nil
	}
	next := &livePod{source: c.source, sourcePod: c.pod, pod: mark(c, old.pod.Annotations[pod.AnnotationFirstSeen])}
	switch {
	case old.source == pod.SourceRestore && c.source == pod.SourceAPI && sameDesired(old.sourcePod, c.pod):
		return RECONCILE, next // it keeps running unchanged
	case old.source == c.source && sameDesired(old.sourcePod, c.pod):
		if equality.Semantic.DeepEqual(&old.sourcePod.Status, &c.pod.Status) {
			return "", nil
		}
		return RECONCILE, next
	case c.pod.DeletionTimestamp != nil:
		return DELETE, next
	default:
		return UPDATE, next
	}
}

// sameDesired reports whether two versions of a pod have the same desired state.
func sameDesired(a, b *v1.Pod) bool {
	return equality.Semantic.DeepEqual(&a.Spec, &b.Spec) &&
		maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(desiredAnnotations(a), desiredAnnotations(b)) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds)
}

// desiredAnnotations returns the pod's annotations without those that only describe how
// the pod reached this node.
func desiredAnnotations(p *v1.Pod) map[string]string {
	desired := maps.Clone(p.Annotations)
	for _, key := range []string{pod.AnnotationSource, pod.AnnotationMirror, pod.AnnotationFirstSeen} {
		delete(desired, key)
	}
	return desired
}

// mark returns a copy of the pod annotated with its source and the time at
// which it was first seen. Everything else is shared with the source's pod.
func mark(c candidate, seen string) *v1.Pod {
	marked := *c.pod
	marked.Annotations = make(map[string]string, len(c.pod.Annotations)+2)
	maps.Copy(marked.Annotations, c.pod.Annotations)
	marked.Annotations[pod.AnnotationSource] = c.source
	if c.source == pod.SourceRestore {
		marked.Annotations[pod.AnnotationSource] = pod.SourceAPI
	}
	marked.Annotations[pod.AnnotationFirstSeen] = seen
	return &marked
}
