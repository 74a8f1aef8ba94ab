// Package cni owns the protocol between a container runtime and a network
// plugin, the Container Network Interface 0.3.0 to 1.1.0: what a runtime says
// in the environment and on standard input, the six verbs, results and errors
// in the shape of the version that was asked for, and the configuration list
// that makes a runtime call the plugin. What a network is, it leaves to who
// calls it (Network).
//
// The rules are those of SPEC.md and CONVENTIONS.md in
// github.com/containernetworking/cni, and where these are silent, what the
// runtimes do: containerd and CRI-O, both over libcni.
package cni
