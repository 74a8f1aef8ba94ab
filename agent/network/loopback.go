package network

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// maxLoopback bounds what is read of a configuration that may be of the plugin
// loopback alone: distributions' have a hundred bytes.
const maxLoopback = 16 << 10

// OnlyLoopback says that a configuration of others has the plugin loopback
// alone, as distributions install it: it is no network of pods. The file is
// judged by what runtimes read of it; one that cannot be read, or not be
// understood, is not of that kind. It blocks on the file system alone.
func OnlyLoopback(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxLoopback {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxLoopback))
	return err == nil && onlyLoopback(filepath.Ext(path), data)
}

// onlyLoopback judges a file's contents. A list has plugins, any other file is
// one (libcni's ConfListFromFile and ConfFromFile).
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
