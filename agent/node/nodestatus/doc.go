// Package nodestatus computes the Node object that the agent registers with an API
// server, and the patches that are sent. It makes no calls, reads no file and no clock,
// and starts no goroutine. Only DropVolumes changes an argument. The functions are safe
// for concurrent use.
//
//	register:  Initial ── create ──┬─ created
//	                               └─ AlreadyExists, Forbidden: Reconcile(existing, initial) ── Patch
//	report:    Update(existing) ── changed, or the report is due ── Patch
//	           Events(before, after)
//	heartbeat: Lease ── create, then LeasePatch
//
// Texts and rules are those of the kubelet of Kubernetes v1.36
// (pkg/kubelet/kubelet_node_status.go and pkg/kubelet/nodestatus/setters.go), on
// which schedulers, controllers and kubectl depend. The following differs, for a
// board that restarts often and has a slow uplink:
//
//   - What the container runtime has not reported since the agent started
//     (version, handlers, features, images) stays as the API server has it.
//     The kubelet clears it, and sends it again a little later.
//   - Times have whole seconds, as in JSON, so that an object that was sent equals
//     the one that comes back.
//   - Swap that was switched off is removed from the status.
//   - An unreadable boot ID is not reported as a reboot.
//   - The node cannot register as unschedulable: Kubernetes removed
//     --register-schedulable. A taint of registerWithTaints has the same effect.
package nodestatus
