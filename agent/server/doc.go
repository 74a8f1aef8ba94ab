// Package server owns the node's HTTPS API, which the API server, kubectl by
// way of it, metrics-server and Prometheus call on port 10250: who gets a
// connection, how long an answer may take, which paths there are, and what
// they answer. Package authz decides who may ask for what; what is told comes
// from the funcs in Config. The streams of exec, attach, run and portForward
// are a handler that Config hands over.
//
// Paths, texts and codes are those of the kubelet 1.36
// (pkg/kubelet/server/server.go). What differs:
//
//   - Options of a log that make no sense are told with the reason.
//   - A log that breaks off in the middle breaks the connection off too. The
//     kubelet writes the error to the end of the log, as if it were of it.
//   - /logs/ follows symbolic links only within the folder, and gives content
//     only of regular files. There is no query of the journal behind it.
//   - An answer is given up when its reader takes nothing for half a minute,
//     in place of four hours after it began.
//   - TLS 1.2 is the least, also where the configuration has an older one.
//   - /checkpoint/, /statusz, /flagz, /metrics/slis and /healthz/log are not
//     there. The text of /statusz and /flagz has changing delimiters on
//     purpose, and their other forms were replaced within 1.36.
//   - /debug/flags/v is always off: levels are set in the configuration.
//
// While nobody asks, the server is two goroutines that accept and one that
// waits for its end. Who has shown no credential that holds has few
// connections: the network that has the most of them waits for its own, and a
// newer one of another displaces its oldest. The API server shows its
// certificate in the handshake, and so never depends on how slow strangers are.
package server
