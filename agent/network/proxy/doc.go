// Package proxy has the node carry the addresses of the cluster's Services
// itself, in place of kube-proxy: it follows Services and EndpointSlices, and
// keeps the table of net/nft as they say.
package proxy
