// Package oom says which containers the kernel killed because memory ran out,
// and whose limit it was, by what it counts in memory.events. It owns these
// counts between two looks, the events that tell of them, and the verdict by
// which a container's end has the reason OOMKilled. It never reads the kernel
// log, and never polls.
//
// # Why the runtime's word is not enough
//
// containerd (2.4, internal/cri/server/events.go) says OOMKilled where its shim
// saw memory.events rise and the event reached it, or, for an end with code
// 137, where the counts could still be read. That fails where containerd is
// restarted or away, where its shim ends with the container, where the systemd
// driver's scope is gone first, and where the OCI runtime has taken the group
// away before containerd came to look. And it says OOMKilled, at its end, of a
// container that ran on for days after one of its processes was killed.
// tinylet adds to the runtime's word and takes nothing away from it: an end
// with code 137, or one whose code the runtime has lost, is OOMKilled if a
// process of the container was killed for memory. A container that goes on
// running (singleProcessOOMKill) gets the event alone.
//
// # What is watched
//
// One file is: memory.events of the group of all pods, which counts what
// happens anywhere below it. A change of it, and an end that could be one of
// these, are a sign to look: the counts of each pod's group, and where these
// rose, of its containers' groups. To watch a file of each container in its
// place would cost an open file and 4 KiB of the kernel's for each.
//
// # Whose it was
//
// A container's group goes with the container, so it may be gone at the look:
// the OCI runtime takes tens of milliseconds, a look follows a kill by as much,
// but by up to a second where the group has just told of something else. The
// pod's group stays and has counted the same. So what a pod counted and no
// container of it that is there is loose, and belongs to one that has ended
// with 137 and has not been judged before: to one that the runtime calls
// OOMKilled, or else to the one that ended last. Each end is judged once, so a
// container that was killed for another reason an hour ago is never taken for
// it. Where two containers of one pod are killed within one look, both groups
// are gone, and the runtime heard of neither, the one that ended first stays an
// Error.
//
// Of what happened while no agent ran, the counts of groups that are still
// there tell, without an event; what the groups have taken with them is lost
// but for the runtime's word.
//
// # Whose limit
//
// The kernel counts "oom" where a limit could not be kept, and in the groups
// above; "oom_kill" where a process was killed, whatever ran out
// (memcg_memory_event in mm/memcontrol.c and __oom_kill_process in
// mm/oom_kill.c). A kill in a container whose own "oom" rose is for its limit;
// else, for the pod's if that counted more than its containers; else for the
// limit of all pods where memory.events.local of their group counted one. The
// kernel counts the limit first, and writes pages to the console before it
// kills, so what rose up to 10 s before counts as well; and it counts limits
// that it does not kill for, which is why these are looked at when they happen
// and not with the next kill. Where no limit was met the whole system ran out, which
// is an event of the node, as with a kubelet. /proc/vmstat counts every kill of
// either kind: one that no pod has, while no other group at the top ran into
// a limit, is the system's as well. Which process that was only the kernel log
// says. There is no file whose change tells of it: it is looked for at signs of
// memory pressure and at kills in pods, so one of a system that stalls for
// less than the trigger is told with the next sign. In a container with a
// namespace of cgroups its own group counts in vmstat's place.
package oom
