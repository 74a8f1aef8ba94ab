// Package version holds the version of this binary. The linker sets the release,
// the build time and the commit:
//
//	-ldflags "-X github.com/tinylet/tinylet/agent/config/version.release=0.1.0
//	          -X github.com/tinylet/tinylet/agent/config/version.buildUnix=1767225600
//	          -X github.com/tinylet/tinylet/agent/config/version.commit=89ab..."
package version

import (
	"strconv"
	"strings"
	"time"
)

// Set by the linker, which can set strings only.
var (
	release   = "0.0.0-dev"
	buildUnix = ""
	commit    = ""
)

// Kubernetes is the Kubernetes release whose kubelet tinylet replaces. Its patch number
// is 0, so that no control plane of that minor release is older than the node.
const Kubernetes = "v1.36.0"

// Release returns tinylet's own release, such as 0.1.0, without a leading v.
func Release() string {
	return strings.Map(metadata, strings.TrimPrefix(release, "v"))
}

// Kubelet returns the kubelet version that the node reports: Kubernetes, with
// tinylet's release as build metadata of semantic versioning, such as
// v1.36.0+tinylet.0.1.0.
func Kubelet() string { return Kubernetes + "+tinylet." + Release() }

// Commit returns the hash of the commit that the binary was built from, or "" if the
// linker did not set it.
func Commit() string { return commit }

// MajorMinor returns the major and the minor number of Kubernetes, such as 1 and 36.
func MajorMinor() (major, minor string) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(Kubernetes, "v"), ".")
	minor, _, _ = strings.Cut(rest, ".")
	return major, minor
}

// Line returns the output of --version. kubeadm's preflight check parses it
// (cmd/kubeadm/app/preflight/utils.go).
func Line() string { return "Kubernetes " + Kubelet() }

// BuildTime returns when the binary was built (UTC), or the zero time if the linker did
// not set it. A wall clock before that time is wrong.
func BuildTime() time.Time {
	seconds, err := strconv.ParseInt(buildUnix, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// metadata returns r if semantic versioning allows it in build metadata, else '-'.
func metadata(r rune) rune {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '-':
		return r
	}
	return '-'
}
