package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/config/version"
)

// VersionDocument is the output of version -o json.
type VersionDocument struct {
	// Release is the version of tinylet, such as 0.1.0.
	Release string `json:"release"`
	// KubeletVersion is the version that the node reports.
	KubeletVersion string `json:"kubeletVersion"`
	// Commit is the hash of the source's commit; empty is unknown.
	Commit string `json:"commit,omitempty"`
	// Built is the build time of the binary; nil is unknown.
	Built *time.Time `json:"built,omitempty"`
	// Go is the version of the Go toolchain and standard library of the binary.
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Modules are the Go modules in the binary, without tinylet.
	Modules []ModuleDocument `json:"modules"`
}

// ModuleDocument is a Go module that is linked into the binary.
type ModuleDocument struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	// Sum is the module's hash as in go.sum; empty for vendored sources.
	Sum string `json:"sum,omitempty"`
}

func (s *system) version() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version [-o json]",
		Short: "Print the version",
		Long: "Print the version in the format of the kubelet. With -o json, also print the\n" +
			"release, the commit, the build time, the Go version and the modules of the binary.",
		Example: `  # Print the version.
  tinylet version

  # Print the Go version.
  tinylet version -o json | jq -r .go

  # Print the modules and their versions.
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

// versionDocument returns the document. info is nil in a binary without module
// information.
func versionDocument(info *debug.BuildInfo) VersionDocument {
	d := VersionDocument{
		Release:        version.Release(),
		KubeletVersion: version.Kubelet(),
		Commit:         version.Commit(),
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
