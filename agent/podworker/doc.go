// Package podworker implements the pod workers: one goroutine for each pod UID,
// which syncs, terminates and removes the pod, one step at a time.
//
//	          name free, runtime known
//	Submit ──► waiting ──► syncing ──────────────────┐
//	              │           │                      │ Sync returned Done,
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
// The state of a UID only moves forward until the UID is forgotten. Waiting and
// adopted pods have not been synced yet. A pod waits while another UID holds
// its full name, and until the runtime's pods are known. An adopted pod was
// found in the runtime. Its worker acts on it only after Submit (a source has
// the pod) or Remove (no source has it).
//
// Wakeups carry no data. A worker that wakes reads the current state, so any
// number of wakeups coalesce into one step.
package podworker
