package oom

import (
	"slices"
	"time"
)

// recent is how long after a limit hit a kill is attributed to it. The kernel counts
// the limit hit, prints to the console, and then counts the kill; a check may happen
// in between. A limit may also be hit more often than there are kills, while a killed
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
	past       bool // counted before the agent started
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
	id    string
	n     uint64 // processes
	whole bool   // all processes of the container
	rest  bool   // further processes of a cgroup whose kill was reported before
	cause cause
}

// member is the state of a container of a pod.
type member struct {
	counts
	met time.Time // when a limit hit was last observed
	at  time.Time // when a counter last rose
}

// soon reports whether an event at a time may be caused by a limit hit at met.
func soon(at, met time.Time) bool { return !met.IsZero() && at.Sub(met) < recent }

// ledger holds the OOM counters of one pod. Its zero value is a pod without any
// counts.
type ledger struct {
	pod        counts
	met        time.Time // when a hit of its own limit was last observed
	containers map[string]member
	// past is the sum of classified containers whose cgroups are gone. The pod's
	// counters still include them.
	past counts
	// given counts the unattributed kills that were later attributed to a container.
	given counts
	// limited means that a limit was hit when kills became unattributed.
	limited bool
	// judged holds the classified exits by container ID, and whether they were OOM
	// kills.
	judged map[string]bool
	untold []kill // kills of containers whose names are not known yet
}

// take stores a reading and returns the new kills. A kill for neither the container's
// nor the pod's limit has the cause ofNode.
func (l *ledger) take(now reading) []kill {
	if now.pod.kills < l.pod.kills || now.pod.oom < l.pod.oom {
		*l = ledger{judged: l.judged} // the cgroup was created again
	}
	l.fold(now.containers)
	own, loose := l.own(), l.loose()
	l.pod = now.pod
	var kills []kill
	for id, c := range now.containers {
		old := l.containers[id]
		d := c.since(old.counts)
		if d != (counts{}) {
			old.at = now.at
		}
		if l.containers == nil {
			l.containers = make(map[string]member)
		}
		if d.oom > 0 && !now.past {
			old.met = now.at
		}
		l.containers[id] = member{c, old.met, old.at}
		if d.kills == 0 {
			continue
		}
		// The kernel counts one limit hit for a cgroup whose processes it kills one
		// after the other. The kills take time, since it prints each to the console.
		k := kill{id: id, n: d.kills, whole: d.groups > 0, rest: d.oom == 0 && c.groups > 0 && old.kills > 0}
		if d.oom > 0 || soon(now.at, old.met) || k.rest && c.oom > 0 {
			k.cause = ofContainer
		}
		kills = append(kills, k)
	}
	limited := l.own() > own
	if limited && !now.past {
		l.met = now.at
	}
	limited = limited || soon(now.at, l.met)
	for i := range kills {
		if (limited || kills[i].rest && l.own() > 0) && kills[i].cause != ofContainer {
			kills[i].cause = ofPod
		}
	}
	if l.loose() > loose {
		l.limited = limited
	}
	return kills
}

// fold adds the counters of classified containers whose cgroups are gone to past, so
// that the ledger does not grow while containers of the pod are OOM-killed for
// months.
func (l *ledger) fold(there map[string]counts) {
	for id, c := range l.containers {
		_, is := there[id]
		if _, judged := l.judged[id]; !is && judged {
			l.pass(id, c.counts)
		}
	}
}

// pass drops a container whose cgroup is gone, and adds its counters to past.
func (l *ledger) pass(id string, c counts) {
	l.past.oom += c.oom
	l.past.kills += c.kills
	l.past.groups += c.groups
	delete(l.containers, id)
	l.untold = slices.DeleteFunc(l.untold, func(k kill) bool { return k.id == id })
}

// verdict records whether an exit was an OOM kill.
func (l *ledger) verdict(id string, killed bool) {
	if l.judged == nil {
		l.judged = make(map[string]bool)
	}
	l.judged[id] = killed
}

// own returns how often the pod's own limit was hit. It includes the limit hits of
// containers whose cgroups were never read.
func (l *ledger) own() uint64 {
	n := less(l.pod.oom, l.past.oom)
	for _, c := range l.containers {
		n = less(n, c.oom)
	}
	return n
}

// loose returns the number of kills not attributed to any container.
func (l *ledger) loose() uint64 { return l.rest().kills }

// rest returns the kills and group kills that the pod's cgroup counted and no
// container's did. oom of the result is not set.
func (l *ledger) rest() counts {
	n := counts{kills: less(l.pod.kills, l.given.kills+l.past.kills), groups: less(l.pod.groups, l.given.groups+l.past.groups)}
	for _, c := range l.containers {
		n.kills, n.groups = less(n.kills, c.kills), less(n.groups, c.groups)
	}
	return n
}

// give attributes all unattributed kills to one container.
func (l *ledger) give(id string, hasLimit bool) kill {
	n := l.rest()
	k := kill{id: id, n: n.kills, whole: n.groups > 0}
	l.settle()
	if l.limited {
		k.cause = ofPod
		if hasLimit {
			k.cause = ofContainer
		}
	}
	return k
}

// settle marks all counted kills as attributed and reported.
func (l *ledger) settle() {
	n := l.rest()
	l.given.kills += n.kills
	l.given.groups += n.groups
}
