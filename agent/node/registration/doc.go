// Package registration registers this node at the API server, and keeps its Node
// object and its Lease up to date. Package agent/node/nodestatus computes their
// content; this package decides when to send it.
//
//	register:  create, or patch the existing node; retry until it succeeds
//	report:    on every change, otherwise each 5 min: get, patch what differs,
//	           without volumes of an earlier kubelet of which nothing is left on the node
//	lease:     a patch of 53 bytes each quarter of its duration, or each Renew
//
// The intervals are those of the kubelet (nodeStatusUpdateFrequency,
// nodeStatusReportFrequency, nodeLeaseDurationSeconds). Two things differ, each for
// a thin uplink. The inputs are compared locally in each interval, and the node is
// read from the server only before a patch. When a lease is renewed after it had
// expired, the status is reported at once: the node controller has set the node to
// unknown by then, and nothing else corrects that.
//
// A Node that was deleted is not created again until the agent restarts, as with
// the kubelet: its deletion was intended.
package registration
