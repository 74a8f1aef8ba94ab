// Package resize implements in-place resize of running pods (KEP-1287): the spec from
// the API server, the node's allocation, the actual resources, and the decisions
// between them. All of it is values; the package accesses no runtime, disk or clock.
//
//	spec ──Decide──► Allocation ─PlanOf─► Plan ─the worker─► cgroups
//	        │            │                 ▲                      │
//	        │            └──Encode──► disk └────── Actual ◄───────┘
//	        └──► PodResizePending          └──► PodResizeInProgress
//
// A deferred resize is decided again when a pod terminates, is removed or has shrunk,
// and when all sources have reported their pods. The kubelet also retries every
// three minutes. Package checkpoint stores the allocations.
//
// A pod runs with its allocation, never with the newest spec: Apply returns the pod
// that all other components use. A spec that differs from it is a resize. Decide
// allocates it, defers it or finds it infeasible; Sort orders several resizes. PlanOf
// compares the allocation with the actual resources and returns the steps in order;
// Check rejects a memory limit below the current usage. Conditions and
// ContainerResources are reported to the API server.
//
// The rules, terms and messages are those of the kubelet 1.36
// (pkg/kubelet/allocation, pkg/kubelet/kuberuntime/kuberuntime_manager.go,
// pkg/kubelet/status/status_manager.go). Comments state each difference.
package resize
