package plugin

import (
	"io"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
)

// RunLoopback executes one call of the loopback plugin and returns the exit code of the
// process.
func RunLoopback(env func(string) string, stdin io.Reader, stdout, stderr io.Writer) (exit int) {
	return cni.Call{Env: env, Stdin: stdin, Stdout: stdout, Stderr: stderr}.RunLoopback(bringUpLoopback, loopbackUp)
}

func bringUpLoopback(path string) error {
	return inNamespace(path, (*link.Handle).BringUpLoopback)
}

func loopbackUp(path string) (up bool, err error) {
	err = inNamespace(path, func(h *link.Handle) (err error) {
		up, err = h.LoopbackUp()
		return err
	})
	return up, err
}

func inNamespace(path string, do func(*link.Handle) error) error {
	ns, err := netns.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	h, err := link.OpenIn(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	return do(h)
}
