// Package resize owns the resize of running pods in place (KEP-1287): what
// the API server's spec asks for, what the node has allocated, what runs, and
// the decisions between them. All of it is values; nothing here talks to a
// runtime, a disk or a clock.
//
//	spec ──Decide──► Allocation ─PlanOf─► Plan ─the worker─► cgroups
//	        │            │                 ▲                      │
//	        │            └──Encode──► disk └────── Actual ◄───────┘
//	        └──► PodResizePending          └──► PodResizeInProgress
//
// A resize that waits is decided again when a pod is over, removed or has
// shrunk, and when all sources have told their pods; the kubelet also does so
// every three minutes. Package record keeps the allocations.
//
// A pod is run by its allocation, never by the newest spec: Apply gives the
// pod that all else on the node looks at. A spec that asks for something else
// is a resize. Decide allocates it, puts it off or refuses it; Sort says
// which of several comes first. PlanOf compares the allocation with what runs
// and says what has to be done, in which order; Check refuses to lower a
// memory limit below what is used. Conditions and ContainerResources are what
// the API server is told.
//
// The rules, words and messages are those of the kubelet 1.36
// (pkg/kubelet/allocation, pkg/kubelet/kuberuntime/kuberuntime_manager.go,
// pkg/kubelet/status/status_manager.go). Where something differs, it says so.
package resize
