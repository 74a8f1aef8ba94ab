package container

import "errors"

// ErrCorrupt means that content does not match its digest or size.
var ErrCorrupt = errors.New("content does not match its digest")

// Blob is content in the runtime's content store, as an OCI descriptor
// describes it.
type Blob struct {
	MediaType string
	Digest    string // sha256: and 64 lower-case hex digits
	Size      int64  // bytes
	// Refs are the digests of the blobs that this blob references, keyed by
	// their role: config; l.0, l.1 and so on for layers; m.0, m.1 and so on for
	// manifests.
	Refs map[string]string
}
