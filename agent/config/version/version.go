// Package version says which release this binary is. The release and the
// build time are stamped by the linker:
//
//	-ldflags "-X github.com/tinylet/tinylet/agent/config/version.release=0.1.0
//	          -X github.com/tinylet/tinylet/agent/config/version.buildUnix=1767225600"
package version

import (
	"strconv"
	"strings"
	"time"
)

// Stamped by the linker, which sets strings only.
var (
	release   = "0.0.0-dev"
	buildUnix = ""
)

// Kubernetes is the release whose kubelet contract is honoured. The patch
// number stays 0, so that no control plane of that minor release is older
// than its node.
const Kubernetes = "v1.36.0"

// Release is tinylet's own release, such as 0.1.0, without a leading v.
func Release() string {
	return strings.Map(metadata, strings.TrimPrefix(release, "v"))
}

// Kubelet is the version that a node reports: Kubernetes' with tinylet's as
// semantic versioning's build metadata, v1.36.0+tinylet.0.1.0.
func Kubelet() string { return Kubernetes + "+tinylet." + Release() }

// Numbers are the major and the minor number of Kubernetes, such as 1 and 36.
func Numbers() (major, minor string) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(Kubernetes, "v"), ".")
	minor, _, _ = strings.Cut(rest, ".")
	return major, minor
}

// Line is what --version prints. kubeadm's preflight check parses it
// (cmd/kubeadm/app/preflight/utils.go).
func Line() string { return "Kubernetes " + Kubelet() }

// Built is when the binary was built, or the zero time where nothing was
// stamped. A clock before it is wrong.
func Built() time.Time {
	seconds, err := strconv.ParseInt(buildUnix, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// metadata keeps what semantic versioning allows in build metadata.
func metadata(r rune) rune {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '-':
		return r
	}
	return '-'
}
