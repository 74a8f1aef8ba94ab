package container

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
)

// Info is what a runtime says of its own configuration in a verbose status, as
// far as it says it. The keys are containerd's (internal/cri/server/status.go of
// containerd: "config" and "cniconfig"); CRI does not define them, so every
// field may be empty.
type Info struct {
	// PluginDirs are the directories in which the runtime looks for CNI plugins,
	// in this order.
	PluginDirs []string
	// ConfigDir is the directory of its CNI network configurations.
	ConfigDir string
	// CallsLoopback reports whether it calls the CNI plugin loopback for each
	// sandbox.
	CallsLoopback bool
	// SandboxImage is the image of sandboxes, "" where the runtime does not say:
	// containerd does until 1.7.
	SandboxImage string
	// CgroupDriver is that of the default runtime handler, systemd or cgroupfs;
	// "" where the runtime does not say.
	CgroupDriver string
}

// NetworkDirectories returns where the runtime reads network configurations and
// where, in this order, it looks for plugins: as n configures, or else as the
// runtime says, or else the usual ones.
func (i *Info) NetworkDirectories(n *config.Network) (configs string, plugins []string) {
	configs = cmp.Or(n.ConfigFolder, i.ConfigDir, config.DefaultConfigFolder)
	switch {
	case n.PluginFolder != "":
		return configs, []string{n.PluginFolder}
	case len(i.PluginDirs) > 0:
		return configs, i.PluginDirs
	}
	return configs, []string{config.DefaultPluginFolder}
}

// containerdConfig is what is read of the configuration of containerd's CRI
// plugin. 1.7 has binDir and sandboxImage, later versions have binDirs.
type containerdConfig struct {
	CNI struct {
		BinDir              string   `json:"binDir"`
		BinDirs             []string `json:"binDirs"`
		ConfDir             string   `json:"confDir"`
		UseInternalLoopback bool     `json:"useInternalLoopback"`
	} `json:"cni"`
	SandboxImage  string `json:"sandboxImage"`
	SystemdCgroup bool   `json:"systemdCgroup"`
	Containerd    struct {
		DefaultRuntimeName string `json:"defaultRuntimeName"`
		Runtimes           map[string]struct {
			Type    string `json:"runtimeType"`
			Options struct {
				SystemdCgroup *bool `json:"SystemdCgroup"`
			} `json:"options"`
		} `json:"runtimes"`
	} `json:"containerd"`
}

// libraryConfig is what is read of the configuration of containerd's library for
// CNI (github.com/containerd/go-cni, ConfigResult).
type libraryConfig struct {
	PluginDirs    []string
	PluginConfDir string
}

// maxInfo bounds a part of a verbose status that is decoded.
const maxInfo = 1 << 20

// ParseInfo reads the info of a verbose status (runtimeapi.StatusResponse). What
// it cannot read it leaves empty, with an error. The values may hold credentials
// of registries: they are not repeated in the error.
func ParseInfo(info map[string]string) (Info, error) {
	var out Info
	var config containerdConfig
	found, err := decodeInfo(info, "config", &config)
	if err != nil {
		return out, err
	}
	if found {
		out.PluginDirs, out.ConfigDir = config.CNI.BinDirs, config.CNI.ConfDir
		if len(out.PluginDirs) == 0 && config.CNI.BinDir != "" {
			out.PluginDirs = []string{config.CNI.BinDir}
		}
		out.CallsLoopback = out.ConfigDir != "" && !config.CNI.UseInternalLoopback
		out.SandboxImage = config.SandboxImage
		out.CgroupDriver = config.cgroupDriver()
	}
	var library libraryConfig
	if _, err := decodeInfo(info, "cniconfig", &library); err != nil {
		return out, err
	}
	if len(library.PluginDirs) > 0 {
		out.PluginDirs = library.PluginDirs
	}
	if library.PluginConfDir != "" {
		out.ConfigDir = library.PluginConfDir
	}
	relative := func(dir string) bool { return !path.IsAbs(dir) }
	out.PluginDirs = slices.DeleteFunc(out.PluginDirs, relative)
	if relative(out.ConfigDir) {
		out.ConfigDir = ""
	}
	return out, nil
}

func decodeInfo(info map[string]string, key string, into any) (found bool, err error) {
	text := info[key]
	switch {
	case text == "" || text == "null":
		return false, nil
	case len(text) > maxInfo:
		return false, fmt.Errorf("decode %s of the runtime's verbose status: it has %d bytes, more than %d", key, len(text), maxInfo)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return false, fmt.Errorf("decode %s of the runtime's verbose status (%d bytes): it is no JSON of the expected form", key, len(text))
	}
	return true, nil
}

// Drivers of cgroups by which a runtime makes them.
const (
	driverSystemd  = "systemd"
	driverCgroupfs = "cgroupfs"
)

// typeRunc is the only shim whose option SystemdCgroup is known.
const typeRunc = "io.containerd.runc.v2"

// cgroupDriver is that of the default runtime handler.
func (c *containerdConfig) cgroupDriver() string {
	handler, ok := c.Containerd.Runtimes[c.Containerd.DefaultRuntimeName]
	switch {
	case c.SystemdCgroup:
		return driverSystemd
	case !ok || handler.Type != typeRunc:
		return ""
	case handler.Options.SystemdCgroup != nil && *handler.Options.SystemdCgroup:
		return driverSystemd
	}
	return driverCgroupfs
}
