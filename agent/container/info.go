package container

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
)

// Info is the runtime's own configuration, as far as its verbose status reports
// it. The keys are containerd's (internal/cri/server/status.go of containerd:
// "config" and "cniconfig"). CRI does not define them, so every field may be
// empty.
type Info struct {
	// PluginDirs are the directories that the runtime searches for CNI plugins,
	// in this order.
	PluginDirs []string
	// ConfigDir is the runtime's directory of CNI network configurations.
	ConfigDir string
	// CallsLoopback reports whether the runtime calls the CNI plugin loopback for each
	// sandbox. It is false if the runtime does not report its CNI configuration.
	CallsLoopback bool
	// SandboxImage is the pause image; "" where the runtime does not report it.
	// containerd reports it up to 1.7.
	SandboxImage string
	// CgroupDriver is the cgroup driver of the default runtime handler, systemd
	// or cgroupfs; "" where the runtime does not report it.
	CgroupDriver string
}

// NetworkDirectories returns the directory of the network configurations and
// the plugin directories in search order. Each is the one that n configures,
// else the one that the runtime reports, else the default.
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

// containerdConfig is the part of the configuration of containerd's CRI plugin
// that ParseInfo decodes. 1.7 has binDir and sandboxImage, later versions have
// binDirs.
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

// cniConfig is the part that ParseInfo decodes of the configuration of
// containerd's CNI library (github.com/containerd/go-cni, ConfigResult).
type cniConfig struct {
	PluginDirs    []string
	PluginConfDir string
}

// maxInfo is the largest value of a verbose status that is decoded, in bytes.
const maxInfo = 1 << 20

// ParseInfo decodes the info of a verbose status (runtimeapi.StatusResponse). It stops at
// the first value that it cannot decode, and returns an error with the fields that it has
// set until then. The error does not quote the values, because they may hold credentials of
// registries. All directories are absolute, also with an error.
func ParseInfo(info map[string]string) (out Info, err error) {
	defer func() {
		relative := func(dir string) bool { return !path.IsAbs(dir) }
		out.PluginDirs = slices.DeleteFunc(out.PluginDirs, relative)
		if relative(out.ConfigDir) {
			out.ConfigDir = ""
		}
	}()
	var config containerdConfig
	if err := decodeInfo(info, "config", &config); err != nil {
		return out, err
	}
	out.PluginDirs, out.ConfigDir = config.CNI.BinDirs, config.CNI.ConfDir
	if len(out.PluginDirs) == 0 && config.CNI.BinDir != "" {
		out.PluginDirs = []string{config.CNI.BinDir}
	}
	out.CallsLoopback = out.ConfigDir != "" && !config.CNI.UseInternalLoopback
	out.SandboxImage = config.SandboxImage
	out.CgroupDriver = config.cgroupDriver()
	var library cniConfig
	if err := decodeInfo(info, "cniconfig", &library); err != nil {
		return out, err
	}
	if len(library.PluginDirs) > 0 {
		out.PluginDirs = library.PluginDirs
	}
	out.ConfigDir = cmp.Or(library.PluginConfDir, out.ConfigDir)
	return out, nil
}

// decodeInfo decodes a value of a verbose status. It leaves into as it is if there is
// none.
func decodeInfo(info map[string]string, key string, into any) error {
	text := info[key]
	switch {
	case text == "" || text == "null":
		return nil
	case len(text) > maxInfo:
		return fmt.Errorf("decode %s of the runtime's verbose status: size %d exceeds %d bytes", key, len(text), maxInfo)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("decode %s of the runtime's verbose status (%d bytes): not JSON of the expected form", key, len(text))
	}
	return nil
}

const (
	driverSystemd  = "systemd"
	driverCgroupfs = "cgroupfs"
)

// typeRunc is the runtime type of runc's shim. It is the only one whose option
// SystemdCgroup is known.
const typeRunc = "io.containerd.runc.v2"

// cgroupDriver returns the cgroup driver of the default runtime handler, or ""
// if it is unknown.
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
