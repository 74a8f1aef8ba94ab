package oom

import (
	"slices"
	"time"
)

// recent is how long after a limit hit a kill is attributed to it. The kernel counts
// the limit hit, prints to the console, and then counts the kill; a check may run in
// between. A limit may also be hit more often than there are kills, while a killed
// process is still exiting.
const recent = 10 * time.Second

// counts holds the counters of a cgroup's memory.events.
type counts struct {
	oom    uint64 // limit hits in its subtree
	kills  uint64 // killed processes
	groups uint64 // kills of a whole cgroup (memory.oom.group)
}

// since returns the increase since an earlier reading.
func (c counts) since(old counts) counts {
	return counts{less(c.oom, old.oom), less(c.kills, old.kills), less(c.groups, old.groups)}
}

// less returns a-b, at least 0: two files are not read at the same moment.
func less(a, b uint64) uint64 { return a - min(a, b) }

// reading holds the counters of a pod's cgroup and its container cgroups at one
// check. The pod's are read first. Containers with zero counters are omitted.
type reading struct {
	at         time.Time
	baseline   bool // counted before the agent started
	pod        counts
	containers map[string]counts // by container ID
}

// cause is whose memory was exhausted.
type cause uint8

const (
	ofNode cause = iota
	ofPods       // all pods together
	ofPod
	ofContainer
)

// kill is what was counted for one container since the previous check.
type kill struct {
	id       string
	n        uint64 // processes
	whole    bool   // all processes of the container
	repeated bool   // further processes of a cgroup whose kill was reported before
	cause    cause
}

// containerCounters is the state of a container of a pod.
type containerCounters struct {
	counts
	limitHitAt time.Time // when a limit hit was last observed
	changedAt  time.Time // when a counter last rose
}

// isRecent reports whether an event at a time may be caused by a limit hit at met.
func isRecent(at, met time.Time) bool { return !met.IsZero() && at.Sub(met) < recent }

// podCounters holds the OOM counters of one pod. Its zero value is a pod without any
// counts.
type podCounters struct {
	pod        counts
	limitHitAt time.Time // when a hit of its own limit was last observed
	containers map[string]containerCounters
	// removed is the sum of classified containers whose cgroups are gone. The pod's
	// counters still include them.
	removed counts
	// attributed counts the unattributed kills that were later attributed to a container.
	attributed counts
	// limited means that a limit was hit when kills became unattributed.
	limited bool
	// classified holds the classified exits by container ID, and whether they were OOM
	// kills.
	classified map[string]bool
	unreported []kill // kills of containers whose names are not known yet
}

// update stores a reading and returns the new kills. A kill for neither the container's
// nor the pod's limit has the cause ofNode.
func (l *podCounters) update(now reading) []kill {
	if now.pod.kills < l.pod.kills || now.pod.oom < l.pod.oom {
		*l = podCounters{classified: l.classified} // the cgroup was created again
	}
	l.foldRemoved(now.containers)
	own, loose := l.podLimitHits(), l.unattributed()
	l.pod = now.pod
	var kills []kill
	for id, c := range now.containers {
		old := l.containers[id]
		d := c.since(old.counts)
		if d != (counts{}) {
			old.changedAt = now.at
		}
		if l.containers == nil {
			l.containers = make(map[string]containerCounters)
		}
		if d.oom > 0 && !now.baseline {
			old.limitHitAt = now.at
		}
		l.containers[id] = containerCounters{c, old.limitHitAt, old.changedAt}
		if d.kills == 0 {
			continue
		}
		// The kernel counts one limit hit for a cgroup whose processes it kills one
		// after the other. The kills take time, since it prints each to the console.
		k := kill{id: id, n: d.kills, whole: d.groups > 0, repeated: d.oom == 0 && c.groups > 0 && old.kills > 0}
		if d.oom > 0 || isRecent(now.at, old.limitHitAt) || k.repeated && c.oom > 0 {
			k.cause = ofContainer
		}
		kills = append(kills, k)
	}
	limited := l.podLimitHits() > own
	if limited && !now.baseline {
		l.limitHitAt = now.at
	}
	limited = limited || isRecent(now.at, l.limitHitAt)
	for i := range kills {
		if (limited || kills[i].repeated && l.podLimitHits() > 0) && kills[i].cause != ofContainer {
			kills[i].cause = ofPod
		}
	}
	if l.unattributed() > loose {
		l.limited = limited
	}
	return kills
}

// foldRemoved adds the counters of classified containers whose cgroups are gone to removed,
// so that containers does not grow while containers of the pod are OOM-killed for months.
func (l *podCounters) foldRemoved(there map[string]counts) {
	for id, c := range l.containers {
		_, is := there[id]
		if _, judged := l.classified[id]; !is && judged {
			l.moveToRemoved(id, c.counts)
		}
	}
}

// moveToRemoved drops a container whose cgroup is gone, and its unreported kills. It adds
// its counters to removed.
func (l *podCounters) moveToRemoved(id string, c counts) {
	l.removed.oom += c.oom
	l.removed.kills += c.kills
	l.removed.groups += c.groups
	delete(l.containers, id)
	l.unreported = slices.DeleteFunc(l.unreported, func(k kill) bool { return k.id == id })
}

// setClassified records whether an exit was an OOM kill.
func (l *podCounters) setClassified(id string, killed bool) {
	if l.classified == nil {
		l.classified = make(map[string]bool)
	}
	l.classified[id] = killed
}

// podLimitHits returns how often the pod's own limit was hit. It includes the limit hits of
// containers whose cgroups were never read.
func (l *podCounters) podLimitHits() uint64 {
	n := less(l.pod.oom, l.removed.oom)
	for _, c := range l.containers {
		n = less(n, c.oom)
	}
	return n
}

// unattributed returns the number of kills not attributed to any container.
func (l *podCounters) unattributed() uint64 { return l.unattributedCounts().kills }

// unattributedCounts returns the kills and group kills that the pod's cgroup counted and no
// container's did. oom of the result is not set.
func (l *podCounters) unattributedCounts() counts {
	n := counts{kills: less(l.pod.kills, l.attributed.kills+l.removed.kills), groups: less(l.pod.groups, l.attributed.groups+l.removed.groups)}
	for _, c := range l.containers {
		n.kills, n.groups = less(n.kills, c.kills), less(n.groups, c.groups)
	}
	return n
}

// attribute attributes all unattributed kills to one container.
func (l *podCounters) attribute(id string, hasLimit bool) kill {
	n := l.unattributedCounts()
	k := kill{id: id, n: n.kills, whole: n.groups > 0}
	l.markAttributed()
	if l.limited {
		k.cause = ofPod
		if hasLimit {
			k.cause = ofContainer
		}
	}
	return k
}

// markAttributed marks all counted kills as attributed and reported.
func (l *podCounters) markAttributed() {
	n := l.unattributedCounts()
	l.attributed.kills += n.kills
	l.attributed.groups += n.groups
}
