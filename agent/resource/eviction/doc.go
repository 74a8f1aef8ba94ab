// Package eviction is the eviction manager of the node. When a trigger arrives, it
// observes the eviction signals, decides with agent/resource/eviction/policy, reclaims
// node-level resources, and then evicts one pod after another until no threshold is
// met. It also evicts pods that exceed their limits on local storage.
//
// While no threshold is met, and no node condition remains, the check of thresholds has no
// period. It waits for a trigger. The kernel notifies of memory pressure (PSI), and of events
// in memory.events and pids.events of the pods' cgroup. It does not notify of low disk space
// and of few process IDs on the node. Therefore a change of a pod's status is a trigger, and
// other tasks of the agent call Status.Trigger: the log rotation, the reaper, the Node status
// and the Summary API. The local storage of pods with a limit is polled.
package eviction
