package image

import (
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
)

// keyring maps registries to credentials. A key is a host with or without a
// port and a path. The rules are the kubelet's
// (pkg/credentialprovider/keyring.go), except that only whole path components
// match.
type keyring map[string][]credential

// add adds the credentials of a config. They are tried after those added
// before. An entry whose registry cannot be parsed is skipped.
func (k keyring) add(c dockerConfig) {
	for _, registry := range slices.Sorted(maps.Keys(c)) {
		if key, ok := registryKey(registry); ok {
			k[key] = append(k[key], c[registry])
		}
	}
}

// registryKey returns the host and path of an entry. The path prefixes /v1/
// and /v2/ denote the registry's API and are not part of an image name.
func registryKey(registry string) (string, bool) {
	if !strings.HasPrefix(registry, "https://") && !strings.HasPrefix(registry, "http://") {
		registry = "https://" + registry
	}
	u, err := url.Parse(registry)
	if err != nil {
		return "", false
	}
	folder := u.Path
	if strings.HasPrefix(folder, "/v1/") || strings.HasPrefix(folder, "/v2/") {
		folder = folder[len("/v1"):]
	}
	if folder == "/" {
		folder = ""
	}
	return u.Host + folder, true
}

// lookup returns all credentials that match an image, those of the most
// specific registry first. Credentials for Docker Hub may be under its old
// name, index.docker.io.
func (k keyring) lookup(n Name) []credential {
	var found []credential
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(k))) { // longer keys come before their prefixes
		if matchesRegistry(key, n) {
			found = append(found, k[key]...)
		}
	}
	if len(found) == 0 && n.Domain == dockerHub {
		return k[legacyDockerHub]
	}
	return found
}

// matchesRegistry reports whether key matches the registry and path of n. Ports must be
// equal and the numbers of host labels too; a label of the key may be a glob.
// The key's path must be a prefix of whole path components, so that the
// credentials of one team do not match the images of another whose name has
// the same beginning.
func matchesRegistry(key string, n Name) bool {
	registry, folder, _ := strings.Cut(key, "/")
	folder = strings.TrimSuffix(folder, "/")
	if folder != "" && n.Path != folder && !strings.HasPrefix(n.Path, folder+"/") {
		return false
	}
	keyHost, keyPort := hostPort(registry)
	host, port := hostPort(n.Domain)
	labels, globs := strings.Split(host, "."), strings.Split(keyHost, ".")
	if keyPort != port || len(labels) != len(globs) {
		return false
	}
	for i, glob := range globs {
		if ok, err := path.Match(glob, labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// hostPort splits s into host and port. Without a port it returns s and "".
func hostPort(s string) (host, port string) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return s, ""
	}
	return host, port
}
