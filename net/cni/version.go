package cni

// specVersion is a version of the specification, in order.
type specVersion int

// The versions whose results are told apart. 0.1.0 and 0.2.0 have results of
// another kind, which no runtime of today asks for.
const (
	spec030 specVersion = iota
	spec031
	spec040 // CHECK
	spec100 // an address without its IP version
	spec110 // GC, STATUS, and more about interfaces and routes
)

// NewestVersion is the newest version that is spoken.
const NewestVersion = "1.1.0"

// DefaultVersion is what Conflist writes unless told otherwise: containerd 1.7
// is built with libcni 1.1.2, which does not know 1.1.0, containerd 2.0 with
// 1.2.3 and 2.1 with 1.3.0, which do.
const DefaultVersion = "1.0.0"

var versions = [...]string{spec030: "0.3.0", spec031: "0.3.1", spec040: "0.4.0", spec100: "1.0.0", spec110: NewestVersion}

// parseVersion finds a version; it may be unknown.
func parseVersion(version string) (specVersion, bool) {
	for i, v := range &versions {
		if v == version {
			return specVersion(i), true
		}
	}
	return 0, false
}

// appendVersions writes the answer to VERSION in the version that was asked in,
// which need not be among those spoken.
func appendVersions(dst []byte, asked string) []byte {
	if !isVersion(asked) {
		asked = NewestVersion
	}
	dst = append(dst, `{"cniVersion":`...)
	dst = appendString(dst, asked)
	dst = append(dst, `,"supportedVersions":[`...)
	for i, v := range &versions {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, v)
	}
	return append(dst, "]}\n"...)
}

// isVersion is whether a text looks like a version.
func isVersion(text string) bool {
	if text == "" || len(text) > 32 {
		return false
	}
	for _, c := range []byte(text) {
		if c != '.' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
