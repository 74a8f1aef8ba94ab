package preload

import (
	"runtime"
	"strings"
)

// Platform is an operating system and architecture, spelled as in the OCI
// image spec.
type Platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant,omitempty"`
}

// HostPlatform returns the platform of this binary. For 32-bit ARM it is v7.
func HostPlatform() Platform {
	p := Platform{OS: "linux", Architecture: runtime.GOARCH}
	if p.Architecture == "arm" {
		p.Variant = "v7"
	}
	return p
}

func (p Platform) String() string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

// normal returns p with aliases and omitted fields replaced by their canonical
// values.
func (p Platform) normal() Platform {
	p.OS, p.Architecture = strings.ToLower(p.OS), strings.ToLower(p.Architecture)
	switch p.Architecture {
	case "aarch64":
		p.Architecture = "arm64"
	case "x86_64":
		p.Architecture = "amd64"
	case "armhf":
		p.Architecture, p.Variant = "arm", "v7"
	case "armel":
		p.Architecture, p.Variant = "arm", "v6"
	}
	switch {
	case p.Architecture == "arm" && p.Variant == "":
		p.Variant = "v7"
	case p.Architecture == "arm" && len(p.Variant) == 1:
		p.Variant = "v" + p.Variant
	case p.Architecture == "arm64" && (p.Variant == "8" || p.Variant == "v8"):
		p.Variant = ""
	case p.Architecture == "amd64" && p.Variant == "v1":
		p.Variant = ""
	}
	if p.OS == "" {
		p.OS = "linux"
	}
	return p
}

// runnable lists the platforms that a host can run, the best first. The order
// is containerd's (github.com/containerd/platforms, compare.go), because
// containerd chooses among the same manifests again.
func (p Platform) runnable() []Platform {
	p = p.normal()
	out := []Platform{p}
	arm := func(variants ...string) {
		for _, v := range variants {
			out = append(out, Platform{OS: p.OS, Architecture: "arm", Variant: v})
		}
	}
	switch {
	case p.Architecture == "arm64":
		arm("v8", "v7", "v6", "v5")
	case p.Architecture == "arm" && p.Variant == "v8":
		arm("v7", "v6", "v5")
	case p.Architecture == "arm" && p.Variant == "v7":
		arm("v6", "v5")
	case p.Architecture == "arm" && p.Variant == "v6":
		arm("v5")
	case p.Architecture == "amd64":
		out = append(out, Platform{OS: p.OS, Architecture: "386"})
	}
	return out
}

// rank returns how well an image fits the host: 0 is best, -1 means that the
// host cannot run it.
func (p Platform) rank(image Platform) int {
	image = image.normal()
	for i, fits := range p.runnable() {
		if fits == image {
			return i
		}
	}
	return -1
}
