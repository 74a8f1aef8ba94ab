// Package registration keeps this node's object and its lease at the API server
// true. What they say is agent/node/nodestatus; here is when it is sent.
//
//	register:  create, or patch what is there already; until it succeeds
//	report:    whenever something changed, else each 5 min: get, patch what differs
//	           without the volumes of a kubelet of which nothing is left here
//	lease:     a patch of 53 bytes each quarter of its duration, or each Renew
//
// The times are those of the kubelet (nodeStatusUpdateFrequency,
// nodeStatusReportFrequency, nodeLeaseDurationSeconds). What differs, each for
// a thin uplink: the node is looked at locally in each period, and asked for
// at the server only before it is patched; and a lease that could be renewed
// again after it had run out has the status reported at once, since the node
// controller has then called the node unknown, and nobody else corrects that.
//
// A Node that somebody deletes stays deleted until the agent starts again, as
// with the kubelet: who removes a node does not want it back.
package registration
