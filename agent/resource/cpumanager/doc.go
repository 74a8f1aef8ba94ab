// Package cpumanager has containers run on the CPUs that the static policy of
// cpuManagerPolicy gives them. It owns the one Policy of the node (agent/resource/cpumanager/policy
// decides in it), its lock, its file, and what is asked of the runtime for it.
// With the policy none there is no Manager, and nothing of this is built;
// containers that were made before stay where they are until they restart.
//
// A pod gets its CPUs (Allocate) before its first container is made, and they
// are on the disk before any container runs on them. For says where a container
// is to be made. Who runs already is moved by Run, when what is shared has
// changed or a container runs that was made before: by the runtime, and where
// that fails, in its cgroup itself. On a kernel that does not count swap the
// cgroup is written at once: crun refuses there to update a container with a
// memory limit, and would before that undo a resize that was written past it.
// Who has started is moved before its pod's status tells of it (Pod.Running). Those
// that share are moved first.
// A container that is alone does not wait for that: it takes as long as the
// runtime takes for them, where a kubelet looks each ten seconds
// (cpuManagerReconcilePeriod, which has no meaning here).
//
// The file outlives the agent, but what runs is what counts (cpuset.Restore).
// It is read when the first pod asks, with the runtime's containers and the
// kernel's cpuset.cpus. A file that is torn or foreign is told of and written
// anew.
package cpumanager
