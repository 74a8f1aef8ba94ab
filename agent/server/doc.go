// Package server serves the kubelet's HTTPS API, which the API server (also on
// behalf of kubectl), metrics-server and Prometheus call on port 10250. It owns
// connection limits, timeouts, routes and responses. Package authz authorizes
// requests. The data comes from the funcs in Config. A handler in Config serves
// the streams of exec, attach, run and portForward.
//
// Paths, texts and status codes are those of the kubelet 1.36
// (pkg/kubelet/server/server.go). Differences:
//
//   - Invalid log options are rejected with the reason.
//   - If a log cannot be read to its end, the connection is closed. The kubelet
//     appends the error to the log instead.
//   - /logs/ follows symbolic links only within its directory, and serves only
//     regular files. It does not query the systemd journal.
//   - A response is aborted when the client reads nothing for 30 s, instead of
//     four hours after its begin.
//   - TLS 1.2 is the minimum, even if the configuration sets an older version.
//   - /checkpoint/, /statusz, /flagz, /metrics/slis and /healthz/log do not exist.
//     The text of /statusz and /flagz has changing delimiters on purpose, and
//     their other formats were replaced within 1.36.
//   - /debug/flags/v is always disabled: the log level is set in the configuration.
//
// When idle, the server has two goroutines that accept connections and one that
// waits for ctx. Connections without an authorized request are limited to few. At the
// limit, further connections of the source with the most of them wait, and a connection
// of another source displaces the oldest one of that source. The concurrent requests of
// such a connection are limited too, unless its client, such as the API server, has
// shown a valid certificate in the handshake.
package server
