// Package pleg is the pod lifecycle event generator. It reports which pods to
// sync because their state in the runtime changed, and which pods the runtime
// has.
//
// A change carries no state, only the pod's UID. The consumer observes the pod
// again. So a late, duplicate or reordered event does no harm, and a relist
// finds what the event stream loses. The PLEG relists at the start, whenever
// the stream opens or breaks, a moment after it opened, when an event does not
// name its pod, each minute until a stream has delivered its first event, and
// rarely as a safety net. It relists runtimes without events each second.
//
// An idle minute with a working stream costs one call, the heartbeat. A stream
// is silent while nothing happens, so without it a hung runtime would look like
// an idle one.
package pleg
