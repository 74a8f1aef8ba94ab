package image

import (
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
)

// keyring has credentials by registry, as hosts with or without a port and a
// path. The rules are the kubelet's (pkg/credentialprovider/keyring.go), but for
// whole parts of a path.
type keyring struct {
	of map[string][]credential
}

// add takes a config's credentials in; those that came before are tried
// before. An entry that names no registry is left out.
func (k *keyring) add(c dockerConfig) {
	if k.of == nil {
		k.of = make(map[string][]credential)
	}
	for _, registry := range slices.Sorted(maps.Keys(c)) {
		if key, ok := registryKey(registry); ok {
			k.of[key] = append(k.of[key], c[registry])
		}
	}
}

// registryKey is the host and path of an entry. The paths /v1/ and /v2/ are
// the registry's API and no part of a name.
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

// lookup finds what fits an image: all credentials, those of the most
// specific registry first. Docker Hub's go by its old name too.
func (k *keyring) lookup(n Name) []credential {
	var found []credential
	keys := slices.Sorted(maps.Keys(k.of))
	slices.Reverse(keys) // what is longer comes before its prefix
	for _, key := range keys {
		if fits(key, n) {
			found = append(found, k.of[key]...)
		}
	}
	if len(found) == 0 && n.Domain == hub {
		return k.of[oldHub]
	}
	return found
}

// fits compares host labels, of which a key's may be globs, the port, and
// the path, of which a key may have the first parts. A part counts whole: the
// credentials of one team are not shown for the images of another whose name
// begins alike.
func fits(key string, n Name) bool {
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

func hostPort(s string) (host, port string) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return s, ""
	}
	return host, port
}
