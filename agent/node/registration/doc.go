// Package registration registers this node at the API server, and keeps its Node
// object and its Lease up to date. Package agent/node/nodestatus computes their
// content; this package decides when to send it.
//
//	register:  create, or patch the existing node; retry until it succeeds
//	report:    on every change, otherwise each StatusReportInterval: patch what differs,
//	           without volumes of an earlier kubelet of which nothing is left on the node
//	lease:     a patch of 52 bytes each quarter of its duration, or each RenewInterval
//
// The intervals are those of the kubelet (nodeStatusUpdateFrequency,
// nodeStatusReportFrequency, nodeLeaseDurationSeconds). Two things differ, for a slow
// uplink. The inputs are compared with the last response of the server. The node is read
// from the server only after a failed report or an expired lease. When a lease is renewed
// after it had expired, the status is reported at once: the node controller may have set
// the node to unknown, which the next report on time would correct minutes later.
//
// A Node that was deleted is not created again until the agent restarts, as with
// the kubelet: its deletion was intended.
package registration
