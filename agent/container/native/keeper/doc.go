// Package keeper runs the containers of a node and outlives the agent. One keeper process
// runs the OCI runtime program, is the parent of the containers' first processes, holds
// their exit codes until the agent has acknowledged them, and writes their output in the
// log format of CRI. It knows no Kubernetes and does not interpret what it reads from a
// container, except for line ends.
//
// # What its death costs
//
// A container's standard output and error are FIFOs on a tmpfs that the container itself
// has open for reading and writing. So they always have a reader, and a container gets no
// EPIPE when the keeper dies; it blocks when 64 KiB are unread. The next keeper opens the
// FIFOs again. It knows the containers by their records on the tmpfs. Lost are the bytes
// that the dead keeper had read and not yet written, and, before Linux 6.15, the exit codes
// of the containers that were running. A container with a terminal gets SIGHUP, and the
// standard input of another one ends unless a client of Client.Attach has it open.
//
// # Files
//
// Below Config.Dir, which must be on a tmpfs, only accessible by root:
//
//	lock                the flock of the running keeper
//	keeper.sock         the SEQPACKET socket of the protocol
//	tty<n>              sockets to which the OCI runtime sends terminals
//	containers/<id>/    record.json, the FIFOs out, err and in, and the pid file and log of
//	                    the OCI runtime
//
// # Protocol
//
// A client sends one JSON document in one packet and gets one in response. After a watch
// request, the keeper sends an exit in each packet until the connection closes. Only root
// may connect.
package keeper
