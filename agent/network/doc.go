// Package network sets up the pod network of this node: it selects the network
// mode, writes the conflist by which the container runtime calls tinylet's own
// plugin, and maintains what all pods share (the bridge, the nftables rules, the
// routes to other nodes). It repairs what others have changed. Package net/podnet
// owns what belongs to one pod, in the plugin's process.
//
// It reconciles on events: a change of the node's pod networks, of the uplinks, of
// the rules by others, or of the files that it maintains for the runtime. In
// addition, it reconciles every ten minutes.
package network
