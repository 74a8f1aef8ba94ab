// Package addons runs the add-ons that most clusters have, as programs built
// from their published modules, against a simulated board that is a node of a
// real control plane: kube-proxy, CoreDNS, node-exporter, metrics-server and
// flannel on the board, and Prometheus beside it. mixin.yaml lists what the
// dashboards, rules and alerts of kubernetes-mixin read of a kubelet. The test
// that boots boards carries the build tag cluster; `make test-addons` runs it.
package addons
