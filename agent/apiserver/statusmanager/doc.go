// Package statusmanager owns what the API server hears of the node's pods: their
// statuses, that a deleted pod has ended, and the mirror pods that stand in
// the API for static pods. It decides nothing about the pods themselves.
//
//	status store ── Changed ─┐                       ┌─ patch the status
//	pod source ──── Pods ────┤►  one loop, decides  ─┼─ delete what has ended
//	anybody ─────── Look ────┘   by name, purely     └─ create, delete mirrors
//
// The loop owns all state and is the only one to decide; requests run beside
// it, one at a time for a name and four in all. What the server answers is
// the base of the next patch, until the pod source tells something newer. Nothing
// polls: without a change there is no request, but for a look each ten
// minutes that sends only what differs.
//
// An outage is noticed by what gets no answer, or one that is about the
// server and not about the pod. Then one request at a time is tried, with
// waits between them, and the newest statuses go out when it ends.
//
// The rules are the kubelet's (pkg/kubelet/status/status_manager.go and
// pkg/kubelet/pod/mirror_client.go of Kubernetes v1.36). What differs, each
// for a node on a thin uplink:
//
//   - No request reads a pod before it is patched: the watch and the answers
//     tell what the server has.
//   - A patch has no order of conditions, which are a map, and what the server
//     does not keep of a patch, such as a field that it does not know, is not
//     sent again and again.
//   - A phase that is over stays so for mirror pods too: a static pod that runs
//     again gets a new mirror pod.
package statusmanager
