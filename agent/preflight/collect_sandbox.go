package preflight

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerd's default configuration file, and the files that a configuration of
// version 3 or later imports by default.
const (
	containerdConfig  = "etc/containerd/config.toml"
	containerdImports = "etc/containerd/conf.d/*.toml"
)

// maxImports bounds the number of imported files.
const maxImports = 64

// defaultSandboxes are containerd's default sandbox images, by the first version
// that has each (DefaultSandboxImage in internal/cri/config).
var defaultSandboxes = []struct {
	since releaseNumber
	image string
}{
	{releaseNumber{2, 3}, "registry.k8s.io/pause:3.10.2"},
	{releaseNumber{2, 2}, "registry.k8s.io/pause:3.10.1"},
	{releaseNumber{2, 0}, "registry.k8s.io/pause:3.10"},
	{releaseNumber{1, 7}, "registry.k8s.io/pause:3.8"},
}

// sandboxImage returns the sandbox image of containerd's configuration, or else the
// default of its version; "" if neither is known. containerd 2 does not report it
// over CRI.
func (t tree) sandboxImage(name, version string) string {
	if name != "containerd" {
		return ""
	}
	imports, _ := filepath.Glob(t.path(containerdImports)) // the pattern is valid
	slices.Sort(imports)
	if len(imports) > maxImports {
		imports = imports[:maxImports]
	}
	image := ""
	for _, file := range append([]string{t.path(containerdConfig)}, imports...) {
		if set := sandboxSetting(tree("").lines(file)); set != "" {
			image = set // an import overrides the importing file
		}
	}
	if image != "" {
		return image
	}
	r, ok := parseRelease(version)
	if !ok {
		return ""
	}
	for _, d := range defaultSandboxes {
		if r.number.compare(d.since) >= 0 {
			return d.image
		}
	}
	return ""
}

// sandboxSetting finds the setting in the words of a file's lines: sandbox_image up
// to configuration version 2, sandbox in pinned_images since version 3. It does not
// parse TOML: it finds the setting on a line of its own, as containerd and its
// documents write it.
func sandboxSetting(lines [][]string) (image string) {
	for _, words := range lines {
		key, value, found := strings.Cut(strings.Join(words, ""), "=")
		if !found || key != "sandbox" && key != "sandbox_image" || len(value) < 2 {
			continue
		}
		quote := value[:1]
		if quote != `"` && quote != "'" {
			continue
		}
		if text, _, closed := strings.Cut(value[1:], quote); closed {
			image = text
		}
	}
	return image
}

// query reads the image's status from the runtime.
func (s *SandboxImage) query(ctx context.Context, c runtimeapi.ImageServiceClient) error {
	if s.Name == "" {
		return nil
	}
	r, err := c.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: s.Name}})
	if err != nil {
		return err
	}
	s.Present, s.Pinned = tristate(r.GetImage() != nil), tristate(r.GetImage().GetPinned())
	return nil
}
