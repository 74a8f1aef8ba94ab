package cri

import (
	"fmt"
	"path/filepath"
	"strings"
)

// maxSocketPath is what fits into the kernel's sockaddr_un with its final
// zero byte.
const maxSocketPath = 107

// SocketPath is the path in an endpoint of the form unix:///path,
// unix:/path or /path.
func SocketPath(endpoint string) (string, error) {
	path := endpoint
	if rest, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		path = rest
		if strings.HasPrefix(rest, "//") {
			path = rest[2:]
		}
	}
	switch {
	case endpoint == "":
		return "", fmt.Errorf("endpoint is empty; give unix:///path/of/the/socket")
	case !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("endpoint %q is not a unix socket; give unix:///path/of/the/socket", endpoint)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("endpoint %q holds a zero byte", endpoint)
	}
	path = filepath.Clean(path)
	if path == "/" {
		return "", fmt.Errorf("endpoint %q names no socket", endpoint)
	}
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("endpoint %q is longer than the %d bytes of a socket's path", endpoint, maxSocketPath)
	}
	return path, nil
}
