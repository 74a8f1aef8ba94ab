// Package apiclient is the client of one API server. It uses protobuf, one HTTP/2
// connection for all requests and watches, and a scheme with only the types that a
// node needs.
//
// No error is fatal. A new connection waits until Config.Ready returns (until the clock
// is plausible for certificates). A request is retried when the server asks for it (429
// and 5xx with Retry-After), and otherwise fails with an error that names the request.
// The caller decides when to retry, with wait.Backoff, and logs an outage once, with
// Outage.
//
// A dead link is detected by an HTTP/2 ping without a response, Config.PingAfter and
// 10 s (by default 25 s) after the last byte was received, or 25 s after bytes were
// sent that the peer does not acknowledge. That ends every request and watch on the
// connection. As long as bytes arrive, even 1000 a second, the connection stays. A
// response that stalls, other than a watch, is aborted after a minute.
//
// A Meter counts the bytes on the wire by verb and resource.
package apiclient
