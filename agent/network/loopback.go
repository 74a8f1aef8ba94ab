package network

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
)

// maxLoopback bounds the size of a configuration that may have only the loopback
// plugin, in bytes. Those of distributions have about a hundred.
const maxLoopback = 16 << 10

// OnlyLoopback reports whether a configuration of others has only the loopback
// plugin, as distributions install it. Such a configuration is no pod network. The
// check uses the fields that runtimes read. It returns false for a file that cannot
// be read or parsed. It blocks only on the file system.
func OnlyLoopback(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxLoopback {
		return false
	}
	data, err := readFile(path, maxLoopback)
	return err == nil && onlyLoopback(filepath.Ext(path), data)
}

// onlyLoopback checks a file's content. A conflist has plugins, any other file is
// one plugin (ConfListFromFile and ConfFromFile of libcni).
func onlyLoopback(suffix string, data []byte) bool {
	type plugin struct {
		Type string `json:"type"`
	}
	var c struct {
		plugin
		Plugins []plugin `json:"plugins"`
	}
	if json.Unmarshal(data, &c) != nil {
		return false
	}
	if suffix != ".conflist" {
		return c.Type == "loopback"
	}
	other := func(p plugin) bool { return p.Type != "loopback" }
	return len(c.Plugins) > 0 && !slices.ContainsFunc(c.Plugins, other)
}
