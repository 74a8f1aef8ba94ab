// Package podworker owns the pod workers: one goroutine for each pod UID that
// carries the pod through its life, one step at a time.
//
//	          name free, runtime known
//	Submit ──► waiting ──► syncing ──────────────────┐
//	              │           │                      │ Sync says Done, or
//	              │           │ Remove, deletion     │ Remove, deletion
//	              │ Remove,   │ (cancels the sync)   │
//	              │ deletion  ▼                      ▼
//	Adopt ──► adopted ──► terminating ◄──── grace only shrinks
//	            Remove        │ Terminate returned nil
//	                          ▼
//	                      terminated ── Finish ran; keeps the status
//	                          │ Remove: Forget ran
//	                          ▼
//	                      forgotten (no entry) ── the same UID submitted
//	                                              meanwhile: waiting again
//
// States only move forward for one life of a UID. waiting and adopted are
// syncing that has not begun: a pod waits while another UID holds its full
// name, and before the runtime's pods are known; an adopted pod was found in
// the runtime and is touched only when somebody wants it (Submit) or nobody
// does (Remove).
//
// Wakeups carry no data. A worker that wakes reads the newest facts, so any
// number of wakeups coalesce into one look.
package podworker
