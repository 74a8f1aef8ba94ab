// Package cni owns the protocol between a container runtime and a network plugin: the
// Container Network Interface 0.3.0 to 1.1.0. It has the input in the environment and on
// standard input, the six verbs, results and errors in the format of the requested
// version, and the configuration list by which a runtime calls the plugin. The caller
// implements the network itself (Network).
//
// The rules are those of SPEC.md and CONVENTIONS.md in
// github.com/containernetworking/cni. What these do not specify follows containerd and
// CRI-O, both over libcni.
package cni
