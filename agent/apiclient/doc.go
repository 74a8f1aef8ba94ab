// Package apiclient speaks to one API server, and to no other: protobuf on the
// wire, one connection by HTTP/2 for all requests and watches, a scheme that
// holds the types a node uses and none of the others.
//
// Nothing here is fatal. A request waits for a clock that can judge
// certificates, is tried again as the server asks (429 and 5xx with
// Retry-After), and otherwise fails with an error that names what was
// attempted; whoever asks decides when to ask again, with Backoff, and logs a
// spell of failures once, with Outage. A link that died is noticed 10 s after
// anything was sent that the network does not acknowledge, and else by a ping
// of HTTP/2, 25 s (Config.PingAfter and 10 s) after the last byte came. That
// breaks off every request and watch on it; an answer that stops coming is
// given up after a minute.
//
// What goes over the wire is counted by verb and resource, by a Meter.
package apiclient
