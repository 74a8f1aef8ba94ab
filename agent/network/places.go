package network

import (
	"context"
	"fmt"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
)

// places are where the runtime looks for what makes the pods' network.
type places struct {
	known      bool
	configDir  string
	pluginDirs []string
	loopback   bool // the runtime calls the plugin loopback
}

func placesOf(s config.Network, info container.Info) places {
	configs, plugins := info.NetworkDirectories(&s)
	return places{known: true, configDir: configs, pluginDirs: plugins, loopback: info.CallsLoopback}
}

// locate finds out where the runtime looks. The answer of a runtime that does
// not answer any more still holds; before the first answer nothing can be
// written, and no pod can start either.
func (n *Network) locate(ctx context.Context) error {
	var info container.Info
	if n.cfg.Info != nil {
		var err error
		if info, err = n.cfg.Info(ctx); err != nil {
			if n.places.known {
				return nil
			}
			return fmt.Errorf("find out where the container runtime looks for network plugins: %w", err)
		}
	}
	p := placesOf(n.cfg.Settings, info)
	if n.places.known && p.configDir == n.places.configDir && slices.Equal(p.pluginDirs, n.places.pluginDirs) && p.loopback == n.places.loopback {
		return nil
	}
	n.cfg.Log.Info("found the runtime's network directories", "configDir", p.configDir, "pluginDirs", p.pluginDirs, "callsLoopback", p.loopback)
	n.places, n.folder = p, folder{p.configDir}
	return nil
}

// provide has the runtime find the plugins that it calls: this binary, and the
// loopback where it calls it and there is none.
func (n *Network) provide() error {
	dir, err := providePlugin(n.places.pluginDirs, n.cfg.Binary)
	if err != nil || !n.places.loopback {
		return err
	}
	return provideLoopback(n.places.pluginDirs, dir)
}
