package image

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tinylet/tinylet/agent/store/filewatch"
	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// NodeAuth is the node's docker config: credentials for every pod. It is read
// when an image is pulled, and again after a file has changed. The first valid
// file is used, in the kubelet's order (pkg/credentialprovider/config.go):
// config.json in the kubelet's root directory, in ~/.docker and in /.docker,
// then .dockercfg in the root directory, in ~ and in /. Unlike the kubelet it
// does not search the working directory. It is safe for concurrent use.
type NodeAuth struct {
	files []string
	log   *slog.Logger

	mu         sync.Mutex
	signatures []filewatch.Signature // nil before the first read
	ring       keyring
}

// legacyDockerConfig is the name of a docker config in the legacy format.
const legacyDockerConfig = ".dockercfg"

// NewNodeAuth returns a NodeAuth for the kubelet's root directory rootDir and
// the home directory home, which may be empty. It reads nothing yet.
func NewNodeAuth(rootDir, home string, log *slog.Logger) *NodeAuth {
	home = cmp.Or(home, "/")
	return &NodeAuth{log: log, files: slices.Compact([]string{
		filepath.Join(rootDir, "config.json"),
		filepath.Join(home, ".docker", "config.json"),
		"/.docker/config.json",
		filepath.Join(rootDir, legacyDockerConfig),
		filepath.Join(home, legacyDockerConfig),
		"/" + legacyDockerConfig,
	})}
}

// lookup returns the node's credentials for an image. A nil NodeAuth has none.
func (a *NodeAuth) lookup(n Name) []credential {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.checkChanged() {
		a.load()
	}
	return a.ring.lookup(n)
}

// checkChanged reports whether any of the files has changed since the last call. The first
// call returns true. The caller holds mu.
func (a *NodeAuth) checkChanged() (changed bool) {
	if a.signatures == nil {
		a.signatures, changed = make([]filewatch.Signature, len(a.files)), true
	}
	for i, path := range a.files {
		now, _ := filewatch.NewPath(path).Stat() // without a file, that of no file
		if now != a.signatures[i] {
			a.signatures[i], changed = now, true
		}
	}
	return changed
}

// load loads the first valid file. It logs and skips invalid ones. The caller holds mu.
func (a *NodeAuth) load() {
	a.ring = keyring{}
	for _, path := range a.files {
		c, err := readDockerConfig(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			a.log.Warn("cannot load node docker config", "path", path, "error", err)
			continue
		}
		a.ring.add(c)
		return
	}
}

func readDockerConfig(path string) (dockerConfig, error) {
	data, err := secretfile.ReadAny(path, maxDockerConfig)
	if err != nil {
		return nil, err
	}
	return parseDockerConfig(data, filepath.Base(path) == legacyDockerConfig)
}
