module github.com/tinylet/tinylet/agent/config/kubeletconfig/testdata/upstream

go 1.26.3

toolchain go1.26.8

replace github.com/tinylet/tinylet => ../../../../..

require (
	github.com/google/go-cmp v0.7.0
	github.com/tinylet/tinylet v0.0.0-00010101000000-000000000000
	k8s.io/kubelet v0.37.2
	sigs.k8s.io/randfill v1.0.0
)
