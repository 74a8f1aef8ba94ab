package image

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// NodeAuth is the node's docker config: credentials for every pod. It is read
// when an image is pulled, and again after a file has changed. The first valid
// file is used, in the kubelet's order (pkg/credentialprovider/config.go):
// config.json in the kubelet's root directory, in ~/.docker and in /.docker,
// then .dockercfg in the root directory, in ~ and in /. Unlike the kubelet it
// does not search the working directory. It is safe for concurrent use.
type NodeAuth struct {
	files []nodeFile
	log   *slog.Logger

	mu         sync.Mutex
	signatures []filewatch.Signature
	valid      bool // signatures and ring are set
	ring       keyring
}

type nodeFile struct {
	path   string
	legacy bool
}

// NewNodeAuth returns a NodeAuth for the kubelet's root directory rootDir and
// the home directory home, which may be empty. It reads nothing yet.
func NewNodeAuth(rootDir, home string, log *slog.Logger) *NodeAuth {
	home = cmp.Or(home, "/")
	return &NodeAuth{log: log, files: slices.Compact([]nodeFile{
		{path: filepath.Join(rootDir, "config.json")},
		{path: filepath.Join(home, ".docker", "config.json")},
		{path: "/.docker/config.json"},
		{path: filepath.Join(rootDir, ".dockercfg"), legacy: true},
		{path: filepath.Join(home, ".dockercfg"), legacy: true},
		{path: "/.dockercfg", legacy: true},
	})}
}

// lookup returns the node's credentials for an image. A nil NodeAuth has none.
func (a *NodeAuth) lookup(n Name) []credential {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if changed := a.checkChanged(); changed {
		a.load()
	}
	return a.ring.lookup(n)
}

// checkChanged reports whether any of the files has changed since the last call. The first
// call returns true. The caller holds mu.
func (a *NodeAuth) checkChanged() (changed bool) {
	changed = !a.valid
	if a.signatures == nil {
		a.signatures = make([]filewatch.Signature, len(a.files))
	}
	for i, f := range a.files {
		now, _ := filewatch.NewPath(f.path).Stat() // without a file, that of no file
		if now != a.signatures[i] {
			a.signatures[i], changed = now, true
		}
	}
	a.valid = true
	return changed
}

// load loads the first valid file. It logs and skips invalid ones. The caller holds mu.
func (a *NodeAuth) load() {
	a.ring = keyring{}
	for _, f := range a.files {
		c, err := readDockerConfig(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			a.log.Warn("cannot load node docker config", "path", f.path, "error", err)
			continue
		}
		a.ring.add(c)
		return
	}
}

func readDockerConfig(f nodeFile) (dockerConfig, error) {
	// Non-blocking, in case the path is a FIFO.
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file: %v", info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(file, maxDockerConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.path, err)
	}
	return parseDockerConfig(data, f.legacy)
}
