package addons

import (
	"io/fs"
	"slices"

	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

// Image names of the add-ons, as their published manifests have them.
const (
	nodeExporterImage  = "quay.io/prometheus/node-exporter:v1.12.1"
	metricsServerImage = "registry.k8s.io/metrics-server/metrics-server:v0.9.0"
	flannelImage       = "ghcr.io/flannel-io/flannel:v0.28.10"
	flannelCNIImage    = "ghcr.io/flannel-io/flannel-cni-plugin:v0.9.1"
)

// path is the PATH of the images, which have programs of Debian.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// program returns the image of a static program and what it needs beside
// itself: a folder for temporary files, and more files.
func program(name, at string, data []byte, more ...imagetar.File) imagetar.Image {
	return imagetar.Image{
		Name: name, GOARCH: "arm64", Entrypoint: []string{"/" + at}, Env: []string{path},
		Files: slices.Concat([]imagetar.File{
			{Name: at, Mode: 0o755, Data: data},
			{Name: "tmp/", Mode: 0o777 | fs.ModeSticky},
		}, more),
	}
}
