package cni

import (
	"slices"
	"strings"
)

// specVersion is a supported version of the specification. Newer versions are greater.
type specVersion int

// The supported versions. The results of 0.1.0 and 0.2.0 have another format, which no
// current runtime requests.
const (
	spec030 specVersion = iota
	spec031
	spec040 // CHECK
	spec100 // an address without its IP version
	spec110 // GC, STATUS, and more about interfaces and routes
)

// NewestVersion is the newest supported version.
const NewestVersion = "1.1.0"

// DefaultVersion is the version of Conflist. containerd 1.7 is built with libcni 1.1.2, which
// does not support 1.1.0. With 1.1.0 later versions of containerd call STATUS, which starts a
// process, each time that their own status is requested.
const DefaultVersion = "1.0.0"

var versions = [...]string{spec030: "0.3.0", spec031: "0.3.1", spec040: "0.4.0", spec100: "1.0.0", spec110: NewestVersion}

// parseVersion returns a version. ok is false if it is not supported.
func parseVersion(version string) (v specVersion, ok bool) {
	i := slices.Index(versions[:], version)
	return specVersion(max(i, 0)), i >= 0
}

// encodeVersions encodes the result of VERSION. Its version is the requested one, which
// need not be supported.
func encodeVersions(requested string) []byte {
	if !isVersion(requested) {
		requested = NewestVersion
	}
	return encode(struct {
		CNIVersion string   `json:"cniVersion"`
		Supported  []string `json:"supportedVersions"`
	}{requested, versions[:]})
}

// isVersion reports whether a text consists of digits and dots.
func isVersion(text string) bool {
	return text != "" && len(text) <= 32 && strings.Trim(text, ".0123456789") == ""
}
