// Package policy decides which CPUs a container runs on if cpuManagerPolicy is
// static. It defines CPU sets in the kernel's list format (Set), the assignment of
// exclusive CPUs (Policy), and the document in which the assignment survives a
// restart of the agent (Saved). It is pure: it reads no files or clocks, starts
// nothing and writes no cgroup. A Policy has no lock; concurrent users must provide
// one.
//
// # Rules
//
// The rules are those of Kubernetes 1.36 (pkg/kubelet/cm/cpumanager:
// policy_static.go, cpu_assignment.go, cpu_manager.go), for one socket:
//
//   - Some CPUs are reserved: reservedSystemCPUs, or else as many as the sum of
//     kubeReserved and systemReserved, rounded up, chosen as for a container
//     (Reserve). At least one is reserved.
//   - A container in a Guaranteed pod that requests whole CPUs gets that many
//     exclusively, none of them reserved. A pod with pod-level resources (KEP-2837)
//     has no such containers, as with a kubelet whose gate PodLevelResourceManagers
//     is off.
//   - All other containers share the CPUs that are not assigned exclusively,
//     including the reserved ones. So the shared pool is never empty.
//   - The CPUs of a non-restartable init container may be reused by those containers
//     of its pod that never run at the same time: later init containers, sidecars and
//     main containers. No other pod gets them before the pod is gone.
//   - Whole cores are chosen first, then threads of the cores with the fewest free
//     threads, lowest numbers first. With one thread per core these are the lowest
//     numbers.
//   - An assignment is kept until the pod is released, also while a container
//     restarts.
//   - With full-pcpus-only no core is shared between containers. A request that is
//     not a whole number of cores is rejected.
//
// Differences from the kubelet:
//
//   - A saved state that no longer fits the machine or the configuration is corrected
//     from the running containers (Restore). A kubelet refuses to start until its
//     state file is deleted, which may not be possible on a remote node.
//   - With full-pcpus-only, CPUs that a container already holds are not checked
//     again, and those of its own init containers count as free.
//   - The reusable CPUs of init containers are derived from the pod's spec and the
//     CPUs of its containers, so they are correct after a restart of the agent, and
//     also if two pods are admitted alternately.
//   - Ephemeral containers are updated with the shared pool like all others
//     (Changes).
//   - Of the options only full-pcpus-only is implemented; the others are rejected by
//     name (ParseOptions).
package policy
