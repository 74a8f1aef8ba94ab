package image

import (
	"errors"
	"fmt"
	"strings"
)

// Name is a normalized image name.
//
// The rules are those of github.com/distribution/reference v0.6.0
// (ParseNormalizedNamed), which the kubelet and containerd use. The library is
// not linked: its regular expressions permanently take 220 kB of memory, and
// compiling them is slow on a small board.
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
	officialPrefix  = "library/"
	latest          = "latest"
	maxPath         = 255
	maxTag          = 128
)

// ParseName parses and normalizes the image field of a container. It rejects
// an image ID.
func ParseName(s string) (Name, error) {
	if s == "" {
		return Name{}, errors.New("name is empty")
	}
	if len(s) == 64 && all(s, isHex) {
		return Name{}, errors.New("name is an image ID")
	}
	domain, rest := splitDomain(s)
	rest, digest, digested := strings.Cut(rest, "@")
	path, tag, tagged := strings.Cut(rest, ":")
	n := Name{Domain: domain, Path: path, Tag: tag, Digest: digest}

	// A first component that is not a valid domain may still be part of the
	// path.
	whole := path
	if !validDomain(domain) {
		if !validPath(domain) {
			return Name{}, fmt.Errorf("invalid registry %q", domain)
		}
		whole = domain + "/" + path
	}
	switch {
	case !validPath(path):
		return Name{}, fmt.Errorf("invalid repository %q: must be lower-case letters and digits with separators (. _ __ -) between them", path)
	case len(whole) > maxPath:
		return Name{}, fmt.Errorf("repository is longer than %d characters", maxPath)
	case tagged && !validTag(tag):
		return Name{}, fmt.Errorf("invalid tag %q", tag)
	case digested && !validDigest(digest):
		return Name{}, fmt.Errorf("invalid digest %q", digest)
	}
	if !tagged && !digested {
		n.Tag = latest
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

// splitDomain splits s into the registry's domain and the rest. The first
// component is a domain if it has a dot, a port or a capital letter, or is
// localhost; otherwise the domain is docker.io.
func splitDomain(s string) (domain, rest string) {
	first, rest, ok := strings.Cut(s, "/")
	switch {
	case !ok:
		return dockerHub, officialPrefix + s
	case first == legacyDockerHub, first == dockerHub:
		domain = dockerHub
	case first == "localhost", strings.ContainsAny(first, ".:"), strings.ToLower(first) != first:
		domain = first
	default:
		domain, rest = dockerHub, s
	}
	if domain == dockerHub && !strings.Contains(rest, "/") {
		rest = officialPrefix + rest
	}
	return domain, rest
}

// validDomain reports whether s is a host name, an IPv4 address or an IPv6
// address in brackets, with or without a port.
func validDomain(s string) bool {
	host, port, ported := s, "", false
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 2 || !all(s[1:end], func(c byte) bool { return c == ':' || isHexAnyCase(c) }) {
			return false
		}
		if s = s[end+1:]; s == "" {
			return true
		}
		return s[0] == ':' && len(s) > 1 && all(s[1:], isDigit)
	}
	host, port, ported = strings.Cut(s, ":")
	if ported && (port == "" || !all(port, isDigit)) {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' ||
			!all(label, func(c byte) bool { return isLower(c) || isUpper(c) || isDigit(c) || c == '-' }) {
			return false
		}
	}
	return true
}

func validPath(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if !validPart(part) {
			return false
		}
	}
	return true
}

// validPart reports whether s is a path component: words of lower-case letters
// and digits with one separator between two. A separator is a dot, one or two
// underscores, or any number of dashes.
func validPart(s string) bool {
	for {
		n := span(s, func(c byte) bool { return isLower(c) || isDigit(c) })
		if n == 0 {
			return false
		}
		if s = s[n:]; s == "" {
			return true
		}
		switch {
		case s[0] == '-':
			s = s[span(s, func(c byte) bool { return c == '-' }):]
		case strings.HasPrefix(s, "__"):
			s = s[2:]
		case s[0] == '.', s[0] == '_':
			s = s[1:]
		default:
			return false
		}
	}
}

func validTag(s string) bool {
	word := func(c byte) bool { return isLower(c) || isUpper(c) || isDigit(c) || c == '_' }
	return s != "" && len(s) <= maxTag && word(s[0]) &&
		all(s, func(c byte) bool { return word(c) || c == '.' || c == '-' })
}

func validDigest(s string) bool {
	algorithm, sum, _ := strings.Cut(s, ":")
	size := map[string]int{"sha256": 64, "sha384": 96, "sha512": 128}[algorithm]
	return size > 0 && len(sum) == size && all(sum, isHex)
}

func all(s string, is func(byte) bool) bool { return span(s, is) == len(s) }

// span returns the length of the prefix of s whose bytes all satisfy is.
func span(s string, is func(byte) bool) int {
	for i := range len(s) {
		if !is(s[i]) {
			return i
		}
	}
	return len(s)
}

func isLower(c byte) bool      { return 'a' <= c && c <= 'z' }
func isUpper(c byte) bool      { return 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool      { return '0' <= c && c <= '9' }
func isHex(c byte) bool        { return isDigit(c) || 'a' <= c && c <= 'f' }
func isHexAnyCase(c byte) bool { return isHex(c) || 'A' <= c && c <= 'F' }
