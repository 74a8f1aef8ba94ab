package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/config/version"
)

// VersionDocument is what version -o json prints.
type VersionDocument struct {
	// Release is tinylet's own, such as 0.1.0.
	Release string `json:"release"`
	// KubeletVersion is what the node reports.
	KubeletVersion string `json:"kubeletVersion"`
	// Built is when the binary was built; absent where it is not known.
	Built *time.Time `json:"built,omitempty"`
	// Go is the version of the Go toolchain that compiled the binary, and of the
	// standard library in it.
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Modules are those that the binary is made of, tinylet's own excepted.
	Modules []ModuleDocument `json:"modules"`
}

// ModuleDocument is a Go module that is linked into the binary.
type ModuleDocument struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	// Sum is its hash as in go.sum; empty where the sources were vendored.
	Sum string `json:"sum,omitempty"`
}

func (s *system) version() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version [-o json]",
		Short: "Print the version",
		Long: "Print the version in the form of the kubelet. With -o json, also print the release,\n" +
			"when it was built, and the Go release and the modules that are in the binary.",
		Example: `  # Which version is this?
  tinylet version

  # Which Go release compiled it?
  tinylet version -o json | jq -r .go

  # Which modules are in it, and in which versions?
  tinylet version -o json | jq -r '.modules[] | .path + "@" + .version'`,
		Args: cobra.NoArgs,
	}
	form := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *form == outputJSON {
			info, _ := debug.ReadBuildInfo()
			return printJSON(cmd.OutOrStdout(), versionDocument(info))
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Line())
		return err
	}
	return command(cmd)
}

// versionDocument takes the modules from info, which is nil in a binary that
// was built without module information.
func versionDocument(info *debug.BuildInfo) VersionDocument {
	d := VersionDocument{
		Release:        version.Release(),
		KubeletVersion: version.Kubelet(),
		Go:             runtime.Version(),
		Platform:       runtime.GOOS + "/" + runtime.GOARCH,
		Modules:        []ModuleDocument{},
	}
	if built := version.BuildTime(); !built.IsZero() {
		d.Built = &built
	}
	if info == nil {
		return d
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.Modules = append(d.Modules, ModuleDocument{Path: m.Path, Version: m.Version, Sum: m.Sum})
	}
	return d
}
