// Command testpod is what the containers of end-to-end tests run: one static
// binary that serves probes, reports what it sees of its container, handles
// signals in chosen ways, and uses files, memory and output at will.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

// exitError ends the program with a code and without a message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// command is one subcommand. It declares its flags on set and returns what
// runs it with the other arguments.
type command func(set *flag.FlagSet) func(ctx context.Context, args []string) error

var commands = map[string]command{
	"alloc":       allocCommand,
	"exit":        exitCommand,
	"file":        fileCommand,
	"fill":        fillCommand,
	"ignore-term": ignoreCommand,
	"log":         logCommand,
	"report":      reportCommand,
	"serve":       serveCommand,
	"swap":        swapCommand,
	"trap":        trapCommand,
}

func main() {
	err := run(context.Background(), os.Args[1:])
	var code exitError
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintln(os.Stderr, "program:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		names := make([]string, 0, len(commands))
		for name := range commands {
			names = append(names, name)
		}
		slices.Sort(names)
		return errors.New("want one of the commands " + strings.Join(names, ", "))
	}
	set := flag.NewFlagSet(args[0], flag.ContinueOnError)
	do := commands[args[0]](set)
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	return do(ctx, set.Args())
}
