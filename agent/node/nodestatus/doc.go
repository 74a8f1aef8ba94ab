// Package nodestatus owns what the Node object says by which the agent
// registers with an API server, and what of it goes over the wire. It makes
// values of values: it calls nobody, reads no file and no clock, starts
// nothing, and changes none of its arguments, so all of it may be used
// concurrently.
//
//	register:  Initial ── create ──┬─ created
//	                               └─ AlreadyExists: Reconcile(existing, initial) ── Patch
//	report:    Update(existing) ── changed, or the report is due ── Patch
//	           Events(before, after) for people
//	heartbeat: Lease ── create, then LeasePatch
//
// The words and rules are those of the kubelet of Kubernetes v1.36
// (pkg/kubelet/kubelet_node_status.go and pkg/kubelet/nodestatus/setters.go),
// which schedulers, controllers and kubectl read. What differs, each for a
// board that restarts often on a thin uplink:
//
//   - What the container runtime has not told since the agent started
//     (version, handlers, features, images) stays as the API server has it.
//     The kubelet clears it, and sends it again a little later.
//   - Times have whole seconds, as JSON has them: an object that was sent and
//     one that comes back are equal.
//   - Swap that was switched off is no longer told.
//   - A boot ID that cannot be read is no reboot.
//   - There is no way to register as unschedulable: Kubernetes took
//     --register-schedulable away. A taint of registerWithTaints does it.
package nodestatus
