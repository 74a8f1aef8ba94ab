package network

import (
	"path/filepath"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
)

// FileName is the name of the configuration that this package writes. Runtimes use
// the first configuration by name.
const FileName = "10-tinylet.conflist"

// suffixes are those of the files that runtimes read (ConfFiles of libcni).
var suffixes = []string{".conf", ".conflist", ".json"}

// SelectMode returns the network mode: the configured one, or else cni if others have
// installed a network, or else bridge. networks are the configurations of others
// without those that have only the loopback (OnlyLoopback).
func SelectMode(configured string, networks []string) string {
	switch {
	case configured != "":
		return configured
	case len(networks) > 0:
		return config.NetworkCNI
	}
	return config.NetworkBridge
}

// shadowing returns the configuration of others that the runtime uses instead of
// this package's, "" if there is none. It does not check the content of the file.
func shadowing(foreign []string) string {
	if len(foreign) > 0 && foreign[0] < FileName {
		return foreign[0]
	}
	return ""
}

// foreign returns the configurations of others among the file names of a folder,
// sorted. ours reports whether tinylet's file name holds a configuration of
// tinylet.
func foreign(names []string, ours func() bool) []string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !slices.Contains(suffixes, filepath.Ext(name)) || name == FileName && ours()
	})
	slices.Sort(names)
	return names
}
