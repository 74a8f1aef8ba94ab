// Package apiclient speaks to one API server, and to no other: protobuf on the
// wire, one connection by HTTP/2 for all requests and watches, a scheme that
// holds the types a node uses and none of the others.
//
// Nothing here is fatal. A request waits for a clock that can judge
// certificates, is tried again as the server asks (429 and 5xx with
// Retry-After), and otherwise fails with an error that names what was
// attempted; whoever asks decides when to ask again, with Backoff, and logs a
// spell of failures once, with Outage. A link that died is noticed 25 s after
// the last byte came, since a ping of HTTP/2 gets no answer (Config.PingAfter
// and 10 s), or 25 s after something was sent that the network does not
// acknowledge. That breaks off every request and watch on it; as long as bytes
// come, if only a thousand a second, it lives. An answer that stops coming is
// given up after a minute.
//
// What goes over the wire is counted by verb and resource, by a Meter.
package apiclient
