package image

import (
	"errors"
	"fmt"
	"strings"
)

// Name is an image's name in full.
//
// The rules are those of github.com/distribution/reference v0.6.0
// (ParseNormalizedNamed), which the kubelet and containerd use. The library
// itself is left out: its regular expressions cost 220 kB of memory for ever
// and a start-up time that a small board notices.
type Name struct {
	Domain string // docker.io where the name has none
	Path   string // with library/ for Docker Hub's own images
	Tag    string // latest where the name has neither tag nor digest
	Digest string // such as sha256:…, or empty
}

// String is the name in full: what two names of one image share.
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
	hub       = "docker.io"
	oldHub    = "index.docker.io"
	hubFolder = "library/"
	latest    = "latest"
	maxPath   = 255
	maxTag    = 128
)

// ParseName reads the image field of a container.
func ParseName(s string) (Name, error) {
	if s == "" {
		return Name{}, errors.New("it is empty")
	}
	if len(s) == 64 && all(s, isHex) {
		return Name{}, errors.New("it is an ID, not a name")
	}
	domain, rest := splitDomain(s)
	rest, digest, digested := strings.Cut(rest, "@")
	path, tag, tagged := strings.Cut(rest, ":")
	n := Name{Domain: domain, Path: path, Tag: tag, Digest: digest}

	// A first part that looks like a domain and is none may still be a part
	// of the path.
	whole := path
	if !validDomain(domain) {
		if !validPath(domain) {
			return Name{}, fmt.Errorf("%q is no registry", domain)
		}
		whole = domain + "/" + path
	}
	switch {
	case !validPath(path):
		return Name{}, fmt.Errorf("%q is no repository: it may have lower-case letters, digits, and separators (. _ __ -) between them", path)
	case len(whole) > maxPath:
		return Name{}, fmt.Errorf("the repository is longer than %d characters", maxPath)
	case tagged && !validTag(tag):
		return Name{}, fmt.Errorf("%q is no tag", tag)
	case digested && !validDigest(digest):
		return Name{}, fmt.Errorf("%q is no digest", digest)
	}
	if !tagged && !digested {
		n.Tag = latest
	}
	return n, nil
}

// withTag is the image as it is asked for from the runtime: as in the
// kubelet, a missing tag is added, and the rest is left to the runtime.
func withTag(s string, n Name) string {
	if n.Digest == "" && !strings.HasSuffix(s, ":"+n.Tag) {
		return s + ":" + n.Tag
	}
	return s
}

// splitDomain tells a registry's domain from the first part of a path: it
// has a dot, a port or a capital letter, or is localhost.
func splitDomain(s string) (domain, rest string) {
	first, rest, ok := strings.Cut(s, "/")
	switch {
	case !ok:
		return hub, hubFolder + s
	case first == oldHub, first == hub:
		domain = hub
	case first == "localhost", strings.ContainsAny(first, ".:"), strings.ToLower(first) != first:
		domain = first
	default:
		domain, rest = hub, s
	}
	if domain == hub && !strings.Contains(rest, "/") {
		rest = hubFolder + rest
	}
	return domain, rest
}

// validDomain says whether s is a host name, an IPv4 address or an IPv6
// address in brackets, perhaps with a port.
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

// validPart wants words of lower-case letters and digits with one separator
// between two: a dot, one or two underscores, or any number of dashes.
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

// span is how many bytes at the beginning of s are so.
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
