// Command census prints what a board holds of pods as JSON: what the power
// cut test reads on the board.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/test/suites/cluster/census"
)

func main() {
	socket := flag.String("socket", "unix:///run/containerd/containerd.sock", "the runtime's unix socket")
	flag.Parse()
	if err := run(*socket); err != nil {
		fmt.Fprintln(os.Stderr, "census:", err)
		os.Exit(1)
	}
}

func run(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	driver, err := cri.New(cri.Config{RuntimeEndpoint: socket, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return err
	}
	defer driver.Close()
	c, err := census.Read(ctx, driver, census.Board)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(c)
}
