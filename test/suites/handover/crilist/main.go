// Command crilist prints an inventory of the runtime as JSON: what the
// adoption test reads on the board.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/tinylet/tinylet/test/suites/handover/inventory"
)

func main() {
	socket := flag.String("socket", "/run/containerd/containerd.sock", "the runtime's unix socket")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	inv, err := inventory.Read(ctx, *socket)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(inv)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crilist:", err)
		os.Exit(1)
	}
}
