// Command shaped prints the bandwidth limits of the links of the host and of each
// network namespace in /run/netns: a line with the namespace ("host" is the host's own),
// the link, bits per second, and the burst in bits. Tests run it on boards, which have
// no tc.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tinylet/tinylet/net/link"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "shaped:", err)
		os.Exit(1)
	}
}

func run() error {
	host, err := link.Open()
	if err != nil {
		return err
	}
	failed := show("host", host)
	pinned, err := filepath.Glob("/run/netns/*")
	if err != nil {
		return err
	}
	for _, path := range pinned {
		failed = errors.Join(failed, inside(path))
	}
	return failed
}

func inside(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	h, err := link.OpenIn(ns)
	if err != nil {
		return err
	}
	return show(filepath.Base(path), h)
}

// show prints the limits of one namespace's links and closes h.
func show(name string, h *link.Handle) error {
	defer h.Close()
	links, err := h.Links()
	if err != nil {
		return err
	}
	for _, l := range links {
		r, err := h.ShapedTo(l.Index)
		if err != nil {
			return err
		}
		if r != (link.Rate{}) {
			fmt.Println(name, l.Name, r.BitsPerSecond, r.BurstBits)
		}
	}
	return nil
}
