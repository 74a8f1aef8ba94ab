// Package link owns the links, addresses, routes, traffic shaping and sysctls
// of one network namespace, and hears of their changes. It speaks rtnetlink
// over net/netlink, knows no Kubernetes, and keeps no state beside the
// kernel's.
//
// What has to be so is asked for by what it is (EnsureBridge, Configure, Shape):
// the kernel is read first, and nothing is sent where nothing has to change.
package link
