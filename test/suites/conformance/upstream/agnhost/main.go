// Program agnhost starts faster than upstream's, which is linked with the types
// and clients of most API groups: on a simulated board that takes seconds of CPU
// for each container. It has those of upstream's own subcommands that most tests
// of the selection run, as they are, and executes upstream's program for all else.
package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	entrypoint "k8s.io/kubernetes/test/images/agnhost/entrypoint-tester"
	"k8s.io/kubernetes/test/images/agnhost/liveness"
	"k8s.io/kubernetes/test/images/agnhost/mounttest"
	"k8s.io/kubernetes/test/images/agnhost/pause"
	servehostname "k8s.io/kubernetes/test/images/agnhost/serve-hostname"
	testwebserver "k8s.io/kubernetes/test/images/agnhost/test-webserver"
)

// upstream is the whole of upstream's program in the image.
const upstream = "/agnhost-upstream"

func main() {
	root := &cobra.Command{Use: "app"}
	root.AddCommand(entrypoint.CmdEntrypointTester, liveness.CmdLiveness, mounttest.CmdMounttest, pause.CmdPause,
		servehostname.CmdServeHostname, testwebserver.CmdTestWebserver)
	if len(os.Args) < 2 || !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == os.Args[1] }) {
		err := syscall.Exec(upstream, os.Args, os.Environ())
		fmt.Fprintln(os.Stderr, "execute", upstream+":", err)
		os.Exit(126)
	}
	if root.Execute() != nil { // it has printed the error
		os.Exit(1)
	}
}
