package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/suites/cluster/census"
)

const running = "RUNNING"

// snapshot is a census by UID.
type snapshot struct {
	*census.Census
	ready map[string][]string            // ids of sandboxes
	runs  map[string]map[string][]string // ids of running containers, by name
}

func snapshotOf(c *census.Census) snapshot {
	v := snapshot{Census: c, ready: map[string][]string{}, runs: map[string]map[string][]string{}}
	for _, s := range c.Sandboxes {
		if s.Ready {
			v.ready[s.UID] = append(v.ready[s.UID], s.ID)
		}
	}
	for _, x := range c.Containers {
		if x.State != running {
			continue
		}
		if v.runs[x.UID] == nil {
			v.runs[x.UID] = map[string][]string{}
		}
		v.runs[x.UID][x.Name] = append(v.runs[x.UID][x.Name], x.ID)
	}
	return v
}

// active reports whether anything of the pod runs.
func (v snapshot) active(uid string) bool { return len(v.ready[uid]) > 0 || len(v.runs[uid]) > 0 }

// Faults says what of a census must never be, however little has settled. It
// notes which versions of ConfigMaps the pods have.
func (l *Ledger) Faults(c *census.Census) []string {
	v := snapshotOf(c)
	faults := doubles(v)
	for _, uid := range slices.Sorted(maps.Keys(l.pods)) {
		k := l.pods[uid]
		switch {
		case k.gone && !k.forced && v.active(uid):
			faults = append(faults, fmt.Sprintf("pod %s was deleted and gone, and has ready sandboxes %v and running containers %v", k, v.ready[uid], v.runs[uid]))
		case k.end != nil && len(v.runs[uid]) > 0:
			faults = append(faults, fmt.Sprintf("pod %s had ended, and has running containers %v", k, v.runs[uid]))
		}
		faults = append(faults, k.reruns(v)...)
		faults = append(faults, l.contents(k, v)...)
	}
	return faults
}

// doubles are pods, containers and names that run twice.
func doubles(v snapshot) (faults []string) {
	for _, uid := range slices.Sorted(maps.Keys(v.ready)) {
		if ids := v.ready[uid]; len(ids) > 1 {
			faults = append(faults, fmt.Sprintf("pod %s has %d ready sandboxes %v", uid, len(ids), ids))
		}
	}
	byName := map[string]string{}
	for _, x := range v.Containers {
		if x.State != running {
			continue
		}
		if other, ok := byName[x.Pod]; ok && other != x.UID {
			faults = append(faults, fmt.Sprintf("containers of two pods called %s run: %s and %s", x.Pod, other, x.UID))
		}
		byName[x.Pod] = x.UID
	}
	for _, uid := range slices.Sorted(maps.Keys(v.runs)) {
		for _, name := range slices.Sorted(maps.Keys(v.runs[uid])) {
			if ids := v.runs[uid][name]; len(ids) > 1 {
				faults = append(faults, fmt.Sprintf("pod %s runs container %s %d times: %v", uid, name, len(ids), ids))
			}
		}
	}
	return faults
}

// reruns are containers that were started after the API server had the pod's
// end: each start has a log of its own.
func (k *known) reruns(v snapshot) (faults []string) {
	for name, last := range k.end {
		if n, ok := v.Runs[string(k.spec.UID)][name]; ok && n > int(last) {
			faults = append(faults, fmt.Sprintf("pod %s had ended after %d restarts of container %s, and there is a log of run %d", k, last, name, n))
		}
	}
	return faults
}

// contents checks the ConfigMaps of a pod whose main containers run: a version
// that once was current, and none before one that was there already.
func (l *Ledger) contents(k *known, v snapshot) (faults []string) {
	uid := string(k.spec.UID)
	if !k.runsIn(v) {
		return nil
	}
	for volume, configMap := range k.volumes() {
		text := v.Files[uid][volume+"/"+VersionKey]
		n, ok := version(text)
		if !ok || n < max(1, k.seen[volume]) || n > l.latest[configMap] {
			faults = append(faults, fmt.Sprintf("pod %s has version %q of ConfigMap %s, want one of %d to %d", k, text, configMap, max(1, k.seen[volume]), l.latest[configMap]))
			continue
		}
		k.seen[volume] = n
	}
	return faults
}

// runsIn reports whether all main containers run, according to the runtime and to
// the kernel.
func (k *known) runsIn(v snapshot) bool {
	uid := string(k.spec.UID)
	for i := range k.spec.Spec.Containers {
		alive := func(id string) bool { return v.Alive[id] == uid }
		if !slices.ContainsFunc(v.runs[uid][k.spec.Spec.Containers[i].Name], alive) {
			return false
		}
	}
	return slices.ContainsFunc(v.ready[uid], func(id string) bool { return v.Alive[id] == uid })
}

// Missing are the pods that have to run after a power cut, with the API server
// or without, and do not yet.
func (l *Ledger) Missing(c *census.Census) (missing []string) {
	v := snapshotOf(c)
	for _, uid := range slices.Sorted(maps.Keys(l.pods)) {
		if k := l.pods[uid]; k.due() && !k.runsIn(v) {
			missing = append(missing, fmt.Sprintf("pod %s has ready sandboxes %v and running containers %v", k, v.ready[uid], v.runs[uid]))
		}
	}
	return missing
}

// Due are the names of the pods that Missing asks for.
func (l *Ledger) Due() (names []string) {
	for _, k := range l.pods {
		if k.due() {
			names = append(names, k.spec.Name)
		}
	}
	slices.Sort(names)
	return names
}

// due reports whether the pod has to come back. One that runs to an end may have
// ended without a report to the API server.
func (k *known) due() bool {
	return k.ran && k.end == nil && !k.doomed && !k.gone && k.spec.Spec.RestartPolicy == corev1.RestartPolicyAlways
}

// Unsettled returns what of a census is not yet as it is when board and API
// server have come to rest. Observe must have been called before with the pods
// that the API server has. When all is settled, what was deleted by force is off the
// board for good as well.
func (l *Ledger) Unsettled(c *census.Census) (waits []string) {
	v := snapshotOf(c)
	at := make(map[string]bool)
	for _, uid := range slices.Sorted(maps.Keys(l.pods)) {
		k := l.pods[uid]
		if k.gone {
			continue
		}
		at[uid] = true
		for _, why := range l.waits(k, v) {
			waits = append(waits, fmt.Sprintf("pod %s: %s", k, why))
		}
	}
	waits = append(waits, orphans(v, at)...)
	if len(waits) == 0 {
		for _, k := range l.pods {
			k.forced = k.forced && !k.gone
		}
	}
	return waits
}

func (l *Ledger) waits(k *known, v snapshot) []string {
	uid := string(k.spec.UID)
	switch {
	case k.spec.DeletionTimestamp != nil || k.doomed:
		return []string{"it is not deleted yet"}
	case k.end != nil && v.active(uid):
		return []string{fmt.Sprintf("it has ended, and has sandboxes %v and containers %v", v.ready[uid], v.runs[uid])}
	case k.end != nil:
		return nil
	case !k.runsIn(v):
		return []string{fmt.Sprintf("phase %s, ready sandboxes %v, running containers %v", k.spec.Status.Phase, v.ready[uid], v.runs[uid])}
	case !isReady(k.spec):
		return []string{"the API server does not have it as ready"}
	}
	var waits []string
	if k.spec.Status.ObservedGeneration != k.spec.Generation {
		waits = append(waits, fmt.Sprintf("observed generation %d of %d", k.spec.Status.ObservedGeneration, k.spec.Generation))
	}
	for i := range k.spec.Status.ContainerStatuses {
		s := &k.spec.Status.ContainerStatuses[i]
		_, id, _ := strings.Cut(s.ContainerID, "://")
		if !slices.Equal(v.runs[uid][s.Name], []string{id}) {
			waits = append(waits, fmt.Sprintf("the API server has container %s, the board runs %v", id, v.runs[uid][s.Name]))
		}
	}
	for volume, configMap := range k.volumes() {
		if n, _ := version(v.Files[uid][volume+"/"+VersionKey]); n != l.latest[configMap] {
			waits = append(waits, fmt.Sprintf("version %d of ConfigMap %s, want %d", n, configMap, l.latest[configMap]))
		}
	}
	return waits
}

// What the runtime may keep of a pod: of each container the newest and one
// before it, for its end and its log, and the sandboxes that these lie in.
const (
	maxContainers = 2
	maxSandboxes  = 4
)

func tooMany(kind string, counts map[string]int, most int) (waits []string) {
	for _, of := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[of]; n > most {
			waits = append(waits, fmt.Sprintf("%d %s of pod %s, want %d at most", n, kind, of, most))
		}
	}
	return waits
}

// orphans returns what is on the board of pods that the API server does not have,
// and surplus containers and sandboxes of the others.
func orphans(v snapshot, at map[string]bool) (waits []string) {
	sandboxes, containers := map[string]int{}, map[string]int{}
	listed := map[string]bool{}
	for _, s := range v.Sandboxes {
		listed[s.ID] = true
		sandboxes[s.UID]++
		if !at[s.UID] {
			waits = append(waits, fmt.Sprintf("sandbox %s of pod %s %s, which is gone", s.ID, s.Pod, s.UID))
		}
	}
	for _, x := range v.Containers {
		listed[x.ID] = true
		containers[x.UID+" container "+x.Name]++
		if !at[x.UID] {
			waits = append(waits, fmt.Sprintf("container %s (%s, %s) of pod %s %s, which is gone", x.ID, x.Name, x.State, x.Pod, x.UID))
		}
	}
	waits = append(waits, tooMany("containers", containers, maxContainers)...)
	waits = append(waits, tooMany("sandboxes", sandboxes, maxSandboxes)...)
	for _, id := range slices.Sorted(maps.Keys(v.Alive)) {
		if !listed[id] {
			waits = append(waits, fmt.Sprintf("processes of pod %s in %s, which the runtime does not list", v.Alive[id], id))
		}
	}
	for _, uid := range v.Folders {
		if !at[uid] {
			waits = append(waits, fmt.Sprintf("the folder of pod %s, which is gone", uid))
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(v.Runs)) {
		if !at[uid] {
			waits = append(waits, fmt.Sprintf("logs of pod %s, which is gone", uid))
		}
	}
	return waits
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
