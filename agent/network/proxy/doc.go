// Package proxy implements the cluster's Services on this node, in place of
// kube-proxy: it watches Services and EndpointSlices, and keeps the table of
// net/nft up to date.
package proxy
