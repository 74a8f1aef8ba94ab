// Package apiclient is the client of one API server. It uses protobuf, one HTTP/2
// connection for all requests and watches, and a scheme with only the types that a
// node needs.
//
// No error is fatal. A request waits until the clock is plausible for certificates,
// is retried when the server asks for it (429 and 5xx with Retry-After), and
// otherwise fails with an error that names what was attempted. The caller decides
// when to retry, with Backoff, and logs an outage once, with Outage.
//
// A dead link is detected 25 s after the last byte was received, because an HTTP/2
// ping is not answered (Config.PingAfter and 10 s), or 25 s after bytes were sent
// that the peer does not acknowledge. That ends every request and watch on the
// connection. As long as bytes arrive, even at a thousand a second, the connection
// stays. A response that stalls is aborted after a minute.
//
// A Meter counts the bytes on the wire by verb and resource.
package apiclient
