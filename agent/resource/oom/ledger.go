package oom

import (
	"slices"
	"time"
)

// recent is how long after a limit was met a kill is taken for its: the kernel
// counts the one, writes what it found to the console, and then counts the
// other, and a look may come between. A limit may also be met more often than
// there are kills, while what was killed is on its way out.
const recent = 10 * time.Second

// counts are what one group's memory.events says.
type counts struct {
	oom    uint64 // a limit in it could not be kept
	kills  uint64 // processes killed
	groups uint64 // kills of a whole group at once
}

// since is how much was counted after an earlier look.
func (c counts) since(old counts) counts {
	return counts{less(c.oom, old.oom), less(c.kills, old.kills), less(c.groups, old.groups)}
}

// less is a-b, and not under 0: two files are not read at one moment.
func less(a, b uint64) uint64 { return a - min(a, b) }

// reading is what a pod's group and those of its containers count at one look,
// the pod's read first. Containers that count nothing are left out.
type reading struct {
	at         time.Time
	past       bool // it was counted before the agent came
	pod        counts
	containers map[string]counts // by the runtime's ID
}

// cause is whose memory ran out.
type cause uint8

const (
	ofNode cause = iota
	ofPods       // all pods together
	ofPod
	ofContainer
)

// kill is what was counted of one container since the look before.
type kill struct {
	id    string
	n     uint64 // processes
	whole bool   // all of the container
	rest  bool   // of a group whose killing was told of before
	cause cause
}

// member is what is known of a container of a pod.
type member struct {
	counts
	met time.Time // when its limit was last seen to be
	at  time.Time // when it was last seen to count something
}

// soon says whether what happened at a time may be for a limit that was met.
func soon(at, met time.Time) bool { return !met.IsZero() && at.Sub(met) < recent }

// ledger is what is known of one pod. Its zero value is a pod of which nothing
// was counted yet.
type ledger struct {
	pod        counts
	met        time.Time // when its own limit was last seen to be
	containers map[string]member
	// past is what is left of containers that are judged and gone: the pod's
	// counts have theirs still.
	past counts
	// given are loose kills that have found their container.
	given counts
	// limited says that a limit was met when kills became loose.
	limited bool
	// judged are the ends that were judged, by ID, and whether they were for
	// memory.
	judged map[string]bool
	untold []kill // of containers whose names are not known yet
}

// take notes a reading, and answers what is new in it. A kill that is neither
// for the limit of the container nor of the pod has cause ofNode.
func (l *ledger) take(now reading) []kill {
	if now.pod.kills < l.pod.kills || now.pod.oom < l.pod.oom {
		*l = ledger{judged: l.judged} // the group was made anew
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
		// The kernel counts one limit for a group of processes that it kills one
		// after the other, and takes its time: it writes each to the console.
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

// fold keeps only the sum of containers that nobody asks for any more: a pod
// may end for memory for months.
func (l *ledger) fold(there map[string]counts) {
	for id, c := range l.containers {
		_, is := there[id]
		if _, judged := l.judged[id]; !is && judged {
			l.pass(id, c.counts)
		}
	}
}

// pass keeps of a container that is gone only its part of the sum.
func (l *ledger) pass(id string, c counts) {
	l.past.oom += c.oom
	l.past.kills += c.kills
	l.past.groups += c.groups
	delete(l.containers, id)
	l.untold = slices.DeleteFunc(l.untold, func(k kill) bool { return k.id == id })
}

// verdict notes whether an end was for memory.
func (l *ledger) verdict(id string, killed bool) {
	if l.judged == nil {
		l.judged = make(map[string]bool)
	}
	l.judged[id] = killed
}

// own is how often the pod's own limit could not be kept; that of containers
// whose groups were never seen is in it.
func (l *ledger) own() uint64 {
	n := less(l.pod.oom, l.past.oom)
	for _, c := range l.containers {
		n = less(n, c.oom)
	}
	return n
}

// loose are kills of which no container is known.
func (l *ledger) loose() uint64 { return l.rest().kills }

// rest is what the pod's group counted and no container's; of "oom" it says
// nothing.
func (l *ledger) rest() counts {
	n := counts{kills: less(l.pod.kills, l.given.kills+l.past.kills), groups: less(l.pod.groups, l.given.groups+l.past.groups)}
	for _, c := range l.containers {
		n.kills, n.groups = less(n.kills, c.kills), less(n.groups, c.groups)
	}
	return n
}

// give takes what is loose for one container's.
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

// settle takes all that was counted for known, and told.
func (l *ledger) settle() {
	n := l.rest()
	l.given.kills += n.kills
	l.given.groups += n.groups
}
