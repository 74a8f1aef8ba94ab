// Package oom determines which containers the kernel's OOM killer hit, and whose
// memory limit was the cause, from the counters in memory.events. It keeps these
// counters between two checks, records the events of OOM kills, and decides which
// container exits have the reason OOMKilled. It never reads the kernel log and never
// polls.
//
// # Why the runtime's reason is not sufficient
//
// containerd (2.4, internal/cri/server/events.go) reports OOMKilled if its shim
// observed an increase in memory.events and the event reached containerd, or, for exit
// code 137, if the counters could still be read. That fails if containerd is restarting
// or down, if its shim exits with the container, if the systemd driver's scope is
// removed first, and if the OCI runtime removes the cgroup before containerd reads it.
// containerd also reports OOMKilled for a container that continued to run for days after
// one of its processes was killed. tinylet adds to the runtime's reason and removes
// nothing from it: an exit with code 137, or with a code that the runtime has lost, is
// OOMKilled if a process of the container was OOM-killed. A container that continues to
// run (singleProcessOOMKill) only gets the event.
//
// # What is watched
//
// Only one file is watched: memory.events of the pods' parent cgroup, which counts
// everything below it. A change of it, or an exit that may be an OOM kill, triggers a
// check, which reads the counters of each pod's cgroup, and, where these rose, those
// of its container cgroups. Watching a file for each container would cost an open
// file and 4 KiB of kernel memory each.
//
// # Attribution to a container
//
// A container's cgroup is removed with the container, so it may be gone at the check.
// The OCI runtime removes it within tens of milliseconds; a check follows a kill
// within about the same time, or within 1 s if the watched file has just changed
// before. The pod's cgroup remains and has counted the same kills. So kills that the
// pod's cgroup counted and no existing container cgroup did are unattributed. They
// are attributed to a container that exited with 137 and is not classified yet: to
// one that the runtime reports as OOMKilled, or else to the one that exited last.
// Each exit is classified once, so kills are never attributed to a container that was
// killed for another reason an hour ago. If two containers of a pod are killed before
// one check, both cgroups are gone and the runtime noticed neither kill, the one that
// exited first keeps the reason Error.
//
// For kills while the agent was not running, the counters of existing cgroups are
// used, without an event. The counters of removed cgroups are lost; then only the
// runtime's reason remains.
//
// # Attribution to a limit
//
// The kernel counts "oom" in the cgroup whose limit was hit, and in its ancestors. It
// counts "oom_kill" where a process was killed, whatever the cause
// (memcg_memory_event in mm/memcontrol.c and __oom_kill_process in mm/oom_kill.c).
// The cause of a kill is the container's limit if "oom" of its own cgroup rose; else
// the pod's limit if the pod's cgroup counted more than its containers; else the
// limit of all pods if memory.events.local of their parent cgroup counted one. The
// kernel counts the limit hit first, and prints to the console before it kills, so a
// rise within the 10 s before the kill counts as well. The kernel also counts limit
// hits that lead to no kill. That is why they are read when they happen and not at
// the next kill. If no limit was hit, the system ran out of memory, which is an event
// of the node, as with a kubelet. /proc/vmstat counts every kill of both kinds. A
// kill that no pod counted is a system OOM too, unless another top-level cgroup hit a
// limit within the 10 s before. Only the kernel log names the process. No file
// notifies of a kill outside of the pods, so it is detected at memory pressure
// notifications and at kills in pods. A kill in a system that stalls for less than
// the PSI trigger is reported at the next notification. In a container with a cgroup
// namespace, the counter of its own cgroup replaces that of vmstat.
package oom
