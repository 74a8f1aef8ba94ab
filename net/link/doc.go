// Package link owns the links, addresses, routes, traffic shaping and sysctls of one
// network namespace, and watches them for changes. It is a thin layer on
// github.com/vishvananda/netlink: it adds deadlines, bounded retries of interrupted
// dumps, netip types and errors that callers can check. It knows no Kubernetes, and
// keeps no state besides the kernel's.
//
// Callers describe the state that they need (EnsureBridge, Configure, Shape). The
// package changes only what differs.
package link
