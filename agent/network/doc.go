// Package network sets up the pod network of this node: it selects the network
// mode, writes the conflist by which the container runtime calls tinylet's own
// plugin, and maintains what all pods share (the bridge and the nftables rules). It
// repairs what others have changed. Package routes maintains the routes to other
// nodes, package proxy the rules of Services. Package net/podnet does the changes in
// the kernel, also in the plugin's process.
//
// It reconciles on events: a change of the node's pod networks, of the links (those of
// pods excepted), of the rules, or of the files that it maintains for the runtime, and
// a new connection to the runtime. In addition, it reconciles every ten minutes.
package network
