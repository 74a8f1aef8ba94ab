// Package ledger records what the API server has reported of a board's pods, across
// power cuts of the board, and derives from it what a census of the board must
// have, may have and must not have. It decides by what is known exactly: a pod
// that the API server had as Running has to run again, one that it had as
// ended or had no more must not.
package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// JobLabel is on the pods of a Job.
const JobLabel = "batch.kubernetes.io/job-name"

// VersionKey is the key of each ConfigMap that holds its version, a number.
const VersionKey = "version"

// Ledger is what is known of all pods that ever were. The zero value is not
// usable: New makes one.
type Ledger struct {
	pods   map[string]*known
	latest map[string]int  // version of each ConfigMap
	doomed map[string]bool // Jobs
	cuts   int
}

// known is what is known of a pod.
type known struct {
	spec     *corev1.Pod // as the API server had it last
	since    int         // cuts before it was first observed
	ran      bool        // the API server had it as Running
	end      map[string]int32
	doomed   bool // its deletion was asked for
	forced   bool // without waiting for the board
	gone     bool // the API server has it no more
	restarts map[string]int32
	seen     map[string]int // newest version in its volumes, by volume
}

// New makes an empty ledger.
func New() *Ledger {
	return &Ledger{pods: map[string]*known{}, latest: map[string]int{}, doomed: map[string]bool{}}
}

// Cut notes that the board has lost its power.
func (l *Ledger) Cut() { l.cuts++ }

// Next answers the version that a ConfigMap is to have next. From now on it
// may be on the board.
func (l *Ledger) Next(configMap string) int {
	l.latest[configMap]++
	return l.latest[configMap]
}

// Doom notes that a pod's deletion is about to be asked for, with or without
// waiting for the board.
func (l *Ledger) Doom(uid string, force bool) {
	if k := l.pods[uid]; k != nil {
		k.doomed, k.forced = true, k.forced || force
	}
}

// DoomJob notes the same of a Job, and with it of all its pods.
func (l *Ledger) DoomJob(name string) {
	l.doomed[name] = true
	for _, k := range l.pods {
		if k.spec.Labels[JobLabel] == name {
			k.doomed = true
		}
	}
}

// Live are the pods of the API server whose deletion nobody has asked for, by
// name.
func (l *Ledger) Live() []*corev1.Pod {
	var live []*corev1.Pod
	for _, k := range l.pods {
		if !k.doomed && !k.gone {
			live = append(live, k.spec)
		}
	}
	slices.SortFunc(live, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return live
}

// Observe records all the pods that the API server has now, and returns the faults.
func (l *Ledger) Observe(pods []corev1.Pod) []string {
	var faults []string
	listed := make(map[string]bool, len(pods))
	for i := range pods {
		p := &pods[i]
		listed[string(p.UID)] = true
		faults = append(faults, l.observe(p)...)
	}
	for _, uid := range slices.Sorted(maps.Keys(l.pods)) {
		k := l.pods[uid]
		if listed[uid] || k.gone {
			continue
		}
		if !k.doomed {
			faults = append(faults, fmt.Sprintf("pod %s is gone from the API server, and nobody has deleted it", k))
		}
		k.gone = true
	}
	return faults
}

func (l *Ledger) observe(p *corev1.Pod) (faults []string) {
	k := l.pods[string(p.UID)]
	if k == nil {
		k = &known{since: l.cuts, restarts: map[string]int32{}, seen: map[string]int{}}
		l.pods[string(p.UID)] = k
	}
	k.spec = p.DeepCopy()
	k.doomed = k.doomed || l.doomed[p.Labels[JobLabel]]
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf("pod %s: ", k)+fmt.Sprintf(format, args...))
	}
	if k.gone {
		fault("it is back at the API server")
	}
	if p.DeletionTimestamp != nil && !k.doomed {
		fault("it is being deleted, and nobody has asked for that")
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		if before := k.restarts[s.Name]; s.RestartCount < before {
			fault("container %s has %d restarts, and had %d", s.Name, s.RestartCount, before)
		}
		if cuts := l.cuts - k.since; int(s.RestartCount) > cuts {
			fault("container %s has %d restarts after %d power cuts", s.Name, s.RestartCount, cuts)
		}
		k.restarts[s.Name] = s.RestartCount
	}
	if p.Generation > 0 && p.Status.ObservedGeneration > p.Generation {
		fault("observed generation %d of %d", p.Status.ObservedGeneration, p.Generation)
	}
	l.phase(k, fault)
	return faults
}

func (l *Ledger) phase(k *known, fault func(string, ...any)) {
	phase := k.spec.Status.Phase
	over := phase == corev1.PodSucceeded || phase == corev1.PodFailed
	switch {
	case k.end != nil && !over:
		fault("it had ended, and its phase is %s", phase)
	case over && k.end == nil:
		k.end = maps.Clone(k.restarts)
		if k.doomed {
			break // its end is what was asked for
		}
		if policy := k.spec.Spec.RestartPolicy; policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && phase == corev1.PodFailed {
			fault("its phase is %s (%s %s) under the policy %s", phase, k.spec.Status.Reason, k.spec.Status.Message, policy)
		}
	case phase == corev1.PodRunning:
		k.ran = true
	case phase == corev1.PodPending && k.ran:
		fault("its phase was Running, and is Pending")
	}
}

// String names the pod in messages.
func (k *known) String() string { return k.spec.Name + " " + string(k.spec.UID) }

// version reads what a ConfigMap volume holds.
func version(text string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	return n, err == nil
}

// volumes are the ConfigMaps of the pod's volumes, by volume.
func (k *known) volumes() map[string]string {
	out := map[string]string{}
	for i := range k.spec.Spec.Volumes {
		if v := &k.spec.Spec.Volumes[i]; v.ConfigMap != nil {
			out[v.Name] = v.ConfigMap.Name
		}
	}
	return out
}
