// Package shutdown terminates the node's pods when the machine goes down (graceful
// node shutdown). It decides in which order pods are terminated and how long they
// may take (shutdownGracePeriod and related fields of KubeletConfiguration). With
// systemd, it holds the inhibitor lock that makes logind wait for them. The rules
// are those of pkg/kubelet/nodeshutdown of the kubelet, of KEP-2000 and of
// KEP-2712.
//
//	     requested by logind or locally
//	up ────────────────────────────────────────► ending ──► ended
//	 ▲                                             │          │ all groups have ended:
//	 └─────────────────────────────────────────────┴──────────┘ the lock is released
//	     cancelled by every requester
//
// While a shutdown is in progress, the node admits no pods and is not ready. Groups
// of pods end one after the other, the lowest priority first. Time that one group
// does not use is not added to the next. Cancelling a shutdown does not stop the
// termination of a pod that has begun.
//
// A signal of logind only triggers a read of logind's property, which decides. The
// property is also read after every reconnect to the bus. So neither a missed
// signal nor a forged one can begin or end a shutdown.
package shutdown

import v1 "k8s.io/api/core/v1"

// Reasons and messages of pods. Programs parse them.
const (
	// ReasonEnded and MessageEnded are the status of a pod that failed because of
	// the shutdown. MessageEnded is also the message of its condition
	// DisruptionTarget.
	ReasonEnded  = "Terminated"
	MessageEnded = "Pod was terminated in response to imminent node shutdown."
	// ReasonRejected and MessageRejected are the status of a pod that is rejected
	// during the shutdown.
	ReasonRejected  = "NodeShutdown"
	MessageRejected = "Pod was rejected as the node is shutting down."
)

// reasonShutdown is the reason of the node's events.
const reasonShutdown = "Shutdown"

// Terminated reports whether a pod failed because of a node shutdown, and not for a reason
// of its own.
func Terminated(s *v1.PodStatus) bool {
	return s.Phase == v1.PodFailed && (s.Reason == ReasonEnded || s.Reason == ReasonRejected)
}
