// Command tinylet-cni is the plugin without the agent that it is a part of, and
// runs as it does there.
package main

import (
	"os"
	"runtime/debug"

	"github.com/tinylet/tinylet/net/cni/plugin"
)

func main() {
	debug.SetGCPercent(-1)
	os.Exit(plugin.Run(os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
