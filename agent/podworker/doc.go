// Package podworker implements the pod workers: one goroutine for each pod UID,
// which syncs, terminates and removes the pod, one step at a time.
//
//	AdoptRunning ──► adopted ─────────────────┐ RemovePod
//	                    │ UpdatePod           │
//	                    ▼                     │
//	UpdatePod ─────► waiting ─────────────────┤ RemovePod, TerminatePod, deletion
//	                    │ name free,          │
//	                    │ runtime known       │
//	                    ▼                     ▼
//	                 syncing ───────────► terminating (the grace period only shrinks)
//	                     RemovePod,           │ Terminate and Finish returned nil
//	                     TerminatePod,        ▼
//	                     deletion,        terminated (the status is kept)
//	                     Result.Done          │ RemovePod; Forget returned nil
//	                                          ▼
//	                                      forgotten (no worker)
//
// A removal, a termination or a deletion cancels a running Sync. The state of a UID
// only moves forward until the UID is forgotten. If the same UID is submitted between
// its removal and that moment, it is waiting afterwards.
//
// Waiting and adopted pods have not been synced yet. A pod waits while another UID
// holds its full name, and until the runtime's pods are known. An adopted pod was
// found in the runtime. Its worker acts on it only after UpdatePod (a source has the
// pod), RemovePod (no source has it) or TerminatePod.
//
// Wakeups carry no data. A worker that wakes reads the current state, so any
// number of wakeups coalesce into one step.
package podworker
