// Package controlplane is a Kubernetes control plane for tests: the stock etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, set up as
// kubeadm sets them up, with simulated boards beside them on a network that
// leads nowhere else:
//
//	go test -tags cluster -v ./test/harness/controlplane/...
//
// Everything lives in a network namespace of its own, so that several clusters
// may run at once and nothing leaves the machine:
//
//	namespace tinylet-<random>
//	  lo      etcd
//	  br0     10.77.0.1/24; the API server is https://10.77.0.1:6443
//	  board0  tap of the first board, 10.77.0.10; board1 of the second, ...
//
// The servers run on the host and at its speed; only the boards are emulated.
// They are built from their published modules, in the folders servers, etcd
// and metricsserver, by make control-plane metrics-server. A test needs root.
package controlplane
