// Package shutdown owns the end of the node's pods when the machine goes
// down: which are stopped first and how long they may take
// (shutdownGracePeriod and its kin of KubeletConfiguration), and on a machine
// with systemd the inhibitor lock that has logind wait for them. The rules
// are those of pkg/kubelet/nodeshutdown of the kubelet and of KEP-2000 and
// KEP-2712.
//
//	        asked by logind or by somebody here
//	up ────────────────────────────────────────► ending ──► ended
//	 ▲                                             │          │ all groups are over:
//	 └─────────────────────────────────────────────┴──────────┘ the lock is released
//	        taken back by all who asked
//
// While it is not up, the node takes no pods and is not ready. Groups of pods
// end one after the other, the least important first. What one group leaves of
// its time the next does not get. A pod that was told to end goes on ending
// when the shutdown is taken back.
//
// A signal of logind's only says to look again: what counts is logind's own
// property, which is also read whenever the bus was lost, so that neither a
// missed signal nor somebody else's can begin or end a shutdown.
package shutdown

// What is said of pods: programs read these words.
const (
	// ReasonEnded and MessageEnded are the status of a pod that failed because
	// of the shutdown; the message is also that of its condition
	// DisruptionTarget.
	ReasonEnded  = "Terminated"
	MessageEnded = "Pod was terminated in response to imminent node shutdown."
	// ReasonRejected and MessageRejected are for a pod that comes during it.
	ReasonRejected  = "NodeShutdown"
	MessageRejected = "Pod was rejected as the node is shutting down."
)

// reasonShutdown is that of the node's events.
const reasonShutdown = "Shutdown"
