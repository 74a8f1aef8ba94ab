package network

import (
	"context"
	"fmt"
	"reflect"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
)

// directories are the directories in which the runtime searches for network
// configurations and plugins.
type directories struct {
	configDir  string
	pluginDirs []string
	loopback   bool // the runtime calls the loopback plugin
}

func placesOf(s config.Network, info container.Info) directories {
	configs, plugins := info.NetworkDirectories(&s)
	return directories{configDir: configs, pluginDirs: plugins, loopback: info.CallsLoopback}
}

// readDirectories reads the directories from the runtime. While the runtime does not answer,
// the last answer is used. Before the first answer nothing can be written, and no
// pod can start either.
func (n *Network) readDirectories(ctx context.Context) error {
	info, err := n.cfg.Info(ctx)
	if err != nil {
		if n.directories.configDir != "" {
			return nil
		}
		return fmt.Errorf("read network directories of the container runtime: %w", err)
	}
	p := placesOf(n.cfg.Settings, info)
	if reflect.DeepEqual(p, n.directories) {
		return nil
	}
	n.cfg.Log.Info("found network directories of the runtime", "configDir", p.configDir, "pluginDirs", p.pluginDirs, "callsLoopback", p.loopback)
	n.directories, n.folder = p, folder{p.configDir}
	return nil
}

// provide installs the plugins that the runtime calls: the link to this binary, and
// the loopback plugin if the runtime calls it and there is none.
func (n *Network) provide() error {
	dir, err := providePlugin(n.directories.pluginDirs, n.cfg.Binary)
	if err != nil || !n.directories.loopback {
		return err
	}
	return provideLoopback(n.directories.pluginDirs, dir)
}
