// Package network owns how the pods of this node get their network: which mode
// it is, the configuration by which the container runtime calls tinylet's own
// plugin, and what all pods share (the bridge, the rules, the routes to other
// nodes), which it mends when somebody else has changed it. What is of one pod
// is net/podnet's, in the plugin's process.
//
// It waits for events alone: the node's pod networks, a change of the links to
// the world, a change of the rules by somebody else, a change of the files that
// it keeps for the runtime; a slow look each ten minutes is the net below them.
package network
