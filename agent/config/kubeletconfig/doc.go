// Package kubeletconfig has the types of KubeletConfiguration (kubelet.config.k8s.io/v1beta1) with
// the JSON form of k8s.io/kubelet/config/v1beta1. Importing that package would link the feature
// gates of component-base, Prometheus' client and OpenTelemetry into the agent.
//
// types.go is generated from upstream's types by the module in testdata/upstream, whose test also
// compares the two packages.
package kubeletconfig
