// Package policy decides which CPUs a container may run on where
// cpuManagerPolicy is static. It owns the set of CPUs (Set, in the kernel's
// list format), who holds which of them alone (Policy), and the document by
// which that outlives the agent (Saved). It is pure: it reads no files, keeps
// no time, starts nothing and writes to no cgroup. A Policy has no lock; who
// shares it brings one.
//
// # Rules
//
// They are those of Kubernetes 1.36 (pkg/kubelet/cm/cpumanager:
// policy_static.go, cpu_assignment.go, cpu_manager.go), for one socket:
//
//   - Of all CPUs some are reserved: reservedSystemCPUs, or else as many as
//     kubeReserved and systemReserved come to, rounded up, taken like any
//     others (Reserve). At least one is.
//   - A container that asks for whole CPUs in a Guaranteed pod gets so many
//     alone, none of them reserved. A pod with resources of its own (KEP-2837)
//     has no such containers, as with a kubelet whose gate
//     PodLevelResourceManagers is off.
//   - All others share what nobody holds: the reserved CPUs, and the rest. So
//     the shared pool is never empty.
//   - An ordinary init container's CPUs are for those of its pod that never
//     run beside it: later ones, sidecars and main containers. Nobody else can
//     have them before the pod is gone.
//   - Whole cores come first, then threads of the cores with fewest free ones,
//     each by the lowest number. Where there is one thread to a core that is
//     the lowest numbers.
//   - What was given is kept until the pod is released, also while a container
//     restarts.
//   - With full-pcpus-only no core is shared between containers. A request
//     that is no whole number of cores is refused.
//
// Different from the kubelet:
//
//   - A saved state that does not fit the machine or the configuration any
//     more is put right by what runs (Restore), where a kubelet refuses to
//     start until somebody deletes its file: nobody may reach the board.
//   - With full-pcpus-only, CPUs that a container holds already are not judged
//     anew, and those of its own init containers count as free.
//   - What init containers leave to be reused follows from the pod's spec and
//     what its containers hold, so it is there after a restart of the agent,
//     and also where two pods are admitted in turns.
//   - Ephemeral containers are moved with the shared pool like all others
//     (Changes).
//   - Of the options only full-pcpus-only is built; the others are refused by
//     name (ParseOptions).
package policy
