// Package statusmanager owns what the node writes to the API server about its pods:
// their statuses, the deletion of terminated pods, and the mirror pods of static
// pods. It decides nothing about the pods themselves.
//
//	status store ── Changed ─┐                       ┌─ patch statuses
//	pod source ── SetPods ───┤►  one loop, decides  ─┼─ delete terminated pods
//	other parts ── Trigger ──┘   per name            └─ create, delete mirror pods
//
// The loop owns all state and makes all decisions, with pure functions. Requests
// run concurrently, one per name and four in total. The pod in the server's
// response is the base of the next patch until the pod source delivers a newer one.
// There is no polling: without a change there is no request. A resync every ten
// minutes sends only differences.
//
// An outage is detected by requests without a response, or with one that concerns the
// whole server (401, 429, 502, 503, 504). During an outage one request at a time is
// tried, with backoff, and the newest statuses are sent afterwards.
//
// The rules are the kubelet's (pkg/kubelet/status/status_manager.go and
// pkg/kubelet/pod/mirror_client.go of Kubernetes v1.36). The differences, each for
// a node on a slow uplink:
//
//   - A pod is not read before it is patched: the watch and the responses provide
//     the server's state.
//   - A patch contains no order of conditions, which are a map. Parts of a patch
//     that the server does not store, such as unknown fields, are not sent repeatedly.
//   - A terminal phase is final for mirror pods as well: a static pod that runs again
//     gets a new mirror pod.
package statusmanager
