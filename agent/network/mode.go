package network

import (
	"path/filepath"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
)

// FileName is the configuration that this package writes. Runtimes take the
// first by name.
const FileName = "10-tinylet.conflist"

// suffixes are those of the files that runtimes read
// (libcni's ConfFiles).
var suffixes = []string{".conf", ".conflist", ".json"}

// Decide is the mode that is meant: the configured one, or else bridge, unless
// others' networks are there: configurations that have more than the loopback
// (OnlyLoopback).
func Decide(configured string, networks []string) string {
	switch {
	case configured != "":
		return configured
	case len(networks) > 0:
		return config.NetworkCNI
	}
	return config.NetworkBridge
}

// shadowing is the file of others that the runtime takes in place of this
// package's, "" if there is none. It does not ask what is in the file.
func shadowing(foreign []string) string {
	if len(foreign) > 0 && foreign[0] < FileName {
		return foreign[0]
	}
	return ""
}

// foreign picks the configurations of others among the names in a folder.
// ours says whether the file of our name is ours.
func foreign(names []string, ours func() bool) []string {
	var out []string
	for _, name := range names {
		if !slices.Contains(suffixes, filepath.Ext(name)) || name == FileName && ours() {
			continue
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
