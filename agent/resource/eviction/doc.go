// Package eviction is the eviction manager of the node. When a trigger arrives, it
// observes the eviction signals, decides with agent/resource/eviction/policy, reclaims
// node-level resources, and then evicts one pod after another until no threshold is
// met. It also evicts pods that exceed their limits on local storage.
//
// The manager has no period. While no threshold is met it sleeps until a trigger: the
// kernel notifies of memory pressure (PSI, memory.events). The kernel does not notify of
// low disk space and process IDs, so other tasks of the agent that run anyway call
// Status.Trigger: the log rotation, the reaper, the Node status and the Summary API.
package eviction
