// Command tinylet is a Kubernetes node agent for small boards, and the
// commands of someone who sits at one. Called as kubelet, it takes the place
// of one.
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
	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	_ "github.com/tinylet/tinylet/cmd/tinylet/cniplugin" // is the plugin when it is called by its name
)

// The names that the binary answers to, beside that of the plugin
// (cmd/tinylet/cniplugin).
const (
	nameTinylet = "tinylet"
	nameKubelet = "kubelet"
)

// agentRun runs the agent until ctx ends, then returns nil.
type agentRun func(ctx context.Context, cfg *config.Config, log *slog.Logger) error

// program is what main puts together: the parts that tests replace.
type program struct {
	run      agentRun
	commands []*cobra.Command // of someone at the board
	stdout   io.Writer
	stderr   io.Writer
}

func main() {
	p := program{run: agent.Run, commands: cli.Commands(), stdout: os.Stdout, stderr: os.Stderr}
	ctx, stop := withSignals(context.Background(), os.Exit)
	code := p.main(ctx, os.Args)
	stop()
	os.Exit(code)
}

// main runs what the first argument's base name asks for and answers the
// exit code.
func (p *program) main(ctx context.Context, args []string) int {
	name := nameTinylet
	if len(args) > 0 {
		name, args = filepath.Base(args[0]), args[1:]
	}
	var err error
	switch name {
	case nameKubelet:
		err = p.execute(ctx, p.kubeletCommand(), args)
	default:
		name = nameTinylet
		err = p.execute(ctx, p.tinyletCommand(), args)
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

func (p *program) execute(ctx context.Context, cmd *cobra.Command, args []string) error {
	cmd.SetArgs(args)
	cmd.SetOut(p.stdout)
	cmd.SetErr(p.stderr)
	return cmd.ExecuteContext(ctx)
}
