package image

import (
	"strings"

	"github.com/distribution/reference"
)

// Name is a normalized image name.
type Name struct {
	Domain string // docker.io if the name has none
	Path   string // with library/ for Docker Hub's own images
	Tag    string // latest if the name has neither tag nor digest
	Digest string // such as sha256:…, or empty
}

// String returns the full name. It is equal for all spellings of one name.
func (n Name) String() string {
	s := n.Domain + "/" + n.Path
	if n.Tag != "" {
		s += ":" + n.Tag
	}
	if n.Digest != "" {
		s += "@" + n.Digest
	}
	return s
}

const (
	dockerHub       = "docker.io"
	legacyDockerHub = "index.docker.io"
	latest          = "latest"
)

// ParseName parses and normalizes the image field of a container, as the kubelet
// and containerd do. It rejects an image ID.
func ParseName(s string) (Name, error) {
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return Name{}, err
	}
	named = reference.TagNameOnly(named)
	// For a first component such as a_b.c, which is not a valid domain,
	// reference.Domain is empty. The keyring and the runtime take it for the domain.
	n := Name{}
	n.Domain, n.Path, _ = strings.Cut(named.Name(), "/")
	if tagged, ok := named.(reference.Tagged); ok {
		n.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		n.Digest = digested.Digest().String()
	}
	return n, nil
}

// withDefaultTag returns the image name for requests to the runtime. As in the
// kubelet, it adds a missing tag and leaves the rest to the runtime.
func withDefaultTag(s string, n Name) string {
	if n.Digest == "" && !strings.HasSuffix(s, ":"+n.Tag) {
		return s + ":" + n.Tag
	}
	return s
}
