// Package pleg is the pod lifecycle event generator: it tells which pods to
// look at again because the runtime changed something, and which pods the
// runtime holds.
//
// A change carries no state, only the pod's UID: who is told observes the pod
// anew. So an event may be late, doubled or reordered without harm, and what
// an event stream loses is found by a relist: at the start, whenever the
// stream begins or breaks and a moment after it began, when an event does not
// say whose it is, each minute until a stream has delivered its first event,
// and rarely as a safety net. Runtimes without events are relisted each
// second.
//
// An idle minute with a working stream costs one call, the heartbeat: a
// stream says nothing while nothing happens, so a runtime that hangs would
// look like one that is idle.
package pleg
