package cri

import (
	"fmt"
	"path/filepath"
	"strings"
)

// maxSocketPath is the longest path, in bytes, that fits into the kernel's
// sockaddr_un with its terminating zero byte.
const maxSocketPath = 107

// SocketPath returns the path of an endpoint of the form unix:///path,
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
		return "", fmt.Errorf("endpoint is empty: use unix:///path/of/the/socket")
	case !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("endpoint %q is not a unix socket: use unix:///path/of/the/socket", endpoint)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("endpoint %q contains a zero byte", endpoint)
	}
	path = filepath.Clean(path)
	if path == "/" {
		return "", fmt.Errorf("endpoint %q has no socket path", endpoint)
	}
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("endpoint %q exceeds the %d bytes of a socket path", endpoint, maxSocketPath)
	}
	return path, nil
}
