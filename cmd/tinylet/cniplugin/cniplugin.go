// Package cniplugin runs the CNI plugin when the binary is executed under the
// plugin's name. It does so in its init function, before the packages are
// initialized that only the agent needs. Go initializes packages in the order of
// their paths as soon as their imports are initialized, so most packages of
// Kubernetes and gRPC come later. A plugin process takes 6.7 ms of CPU for VERSION, and
// `tinylet version`, for which all packages are initialized, 14.8 ms (the least of 300
// runs each; amd64). Its largest resident size is 17 MB instead of 24 MB, mostly pages
// of the binary that it shares with the agent.
// Each pod needs two such processes.
//
// The binary is also the loopback plugin on a node that has none. A script in the
// runtime's plugin directory names the binary as its interpreter, with the
// argument loopback (agent/network).
package cniplugin

import (
	"os"
	"path"
	"runtime/debug"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/cni/plugin"
)

// Name is the name of the plugin: the CNI plugin type and the name of its file.
const Name = "tinylet-cni"

func init() {
	if len(os.Args) == 0 || path.Base(os.Args[0]) != Name {
		return
	}
	debug.SetGCPercent(-1) // the process ends before a collection pays off
	run := plugin.Run
	if len(os.Args) > 1 && os.Args[1] == cni.LoopbackType {
		run = plugin.RunLoopback
	}
	os.Exit(run(os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
