module github.com/tinylet/tinylet/net/cni/testdata/libcni

go 1.26.3

toolchain go1.26.8

replace github.com/tinylet/tinylet => ../../../..

require (
	github.com/containernetworking/cni v1.3.1
	github.com/google/go-cmp v0.7.0
	github.com/tinylet/tinylet v0.0.0-00010101000000-000000000000
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.opentelemetry.io/otel v1.45.0 // indirect
	go.opentelemetry.io/otel/trace v1.45.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
