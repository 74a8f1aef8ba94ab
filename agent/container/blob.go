package container

import "errors"

// ErrCorrupt says that content is not what its digest or size promises.
var ErrCorrupt = errors.New("content does not match its digest")

// Blob is content in a runtime's store, as an OCI descriptor names it.
type Blob struct {
	MediaType string
	Digest    string // sha256: and 64 lower-case hex digits
	Size      int64  // bytes
	// Refs are the digests of the blobs that this one needs, by what they are
	// to it: config, l.0 and so on for layers, m.0 and so on for manifests.
	Refs map[string]string
}
