// Command tinylet is a Kubernetes node agent for small boards and its command
// line interface. Under the name kubelet, it replaces the kubelet.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/server/profile"
	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	_ "github.com/tinylet/tinylet/cmd/tinylet/cniplugin" // runs as the CNI plugin under that name
)

// Names under which the binary runs as the agent. cmd/tinylet/cniplugin has the
// name of the CNI plugin.
const (
	nameTinylet = "tinylet"
	nameKubelet = "kubelet"
)

// program has the dependencies of main that tests replace.
type program struct {
	run      func(ctx context.Context, cfg *config.Config, log *slog.Logger) error // agent.Run
	commands []*cobra.Command                                                      // subcommands of tinylet
	stdout   io.Writer
	stderr   io.Writer

	// start runs the agent. The agent's command sets it. main calls it after it has dropped
	// the commands and their flags, so that their memory can be freed.
	start func(ctx context.Context) error
}

func main() {
	profile.DeferHeapProfile()
	p := program{run: agent.Run, commands: cli.Commands(), stdout: os.Stdout, stderr: os.Stderr}
	ctx, stop := withSignals(context.Background(), os.Exit)
	code := p.main(ctx, os.Args)
	stop()
	os.Exit(code)
}

// main runs the command that the base name of args[0] selects and returns the
// exit code. Any name other than kubelet is tinylet.
func (p *program) main(ctx context.Context, args []string) int {
	name := nameTinylet
	if len(args) > 0 {
		name, args = filepath.Base(args[0]), args[1:]
	}
	command := p.kubeletCommand
	if name != nameKubelet {
		name, command = nameTinylet, p.tinyletCommand
	}
	cmd := command()
	cmd.SetArgs(args)
	cmd.SetOut(p.stdout)
	cmd.SetErr(p.stderr)
	err := cmd.ExecuteContext(ctx) // the agent's command only prepares start
	p.commands = nil
	if err == nil && p.start != nil {
		err = p.start(ctx)
	}
	if err == nil {
		return 0
	}
	if text := cli.OneLine(err); text != "" {
		fmt.Fprintf(p.stderr, "%s: %s\n", name, text)
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}
