// Package cpumanager runs containers on the CPUs that the static policy of
// cpuManagerPolicy assigns to them. It owns the node's Policy
// (agent/resource/cpumanager/policy makes the decisions), its lock, its state file,
// and the runtime calls for it. With the policy none there is no Manager; containers
// that were created before keep their cpuset until they restart.
//
// A pod gets its CPUs (Allocate) before its first container is created, and the
// assignment is on disk before any container runs on the CPUs. CPUSet returns the
// CPUs of a new container. Run updates running containers when the shared pool has
// changed, or when a container was created before the change: through the runtime,
// and if that fails, by writing its cgroup. On a kernel without swap accounting Run
// writes the cgroup at once: there crun fails to update a container with a memory
// limit, and before it fails it would undo a resize that was written directly to the
// cgroup. A started container is updated before its pod's status reports it
// (pod.Entry.Running). Containers in the shared pool are updated first. A container with
// exclusive CPUs does not wait for that; it shares its CPUs for as long as the
// runtime needs to update the others. A kubelet reconciles every ten seconds instead
// (cpuManagerReconcilePeriod, which has no effect here).
//
// The state file survives a restart of the agent, but running containers take
// precedence (policy.Restore). It is read at the first allocation, together with the
// runtime's containers and their cpuset.cpus. A corrupt or foreign file is reported
// and replaced.
package cpumanager
