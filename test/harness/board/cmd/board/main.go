// Command board makes and boots simulated boards by hand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

const usage = `usage:
  board packages              name the missing distribution packages
  board build [flags]         make the board's image
  board lock [--arch ARCH] [--systemd] [--stock RUNTIME] [--dpkg]
                              list the newest Debian packages of a board, for
                              test/harness/board/packages/
  board boot [flags] [COMMAND ARG...]
                              boot it and run a command, or join its console,
                              which Ctrl-] leaves
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "board:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return 2, noVerb("no verb")
	}
	fs := flag.NewFlagSet("board "+args[0], flag.ContinueOnError)
	arch := fs.String("arch", "arm64", "kind of board: arm64 or armv7")
	systemd := fs.Bool("systemd", false, "the board with systemd as process 1, arm64 alone")
	stock := fs.String("stock", "", "a container runtime in its own configuration: "+strings.Join(board.StockNames(), ", ")+"; debian needs --systemd")
	dpkg := fs.Bool("dpkg", false, "a board to install packages on; needs --systemd --stock debian")
	cache := fs.String("cache", "", "cache folder (default: .cache/board in the checkout)")
	overlay := fs.String("overlay", "", "root file system overlay (default: the product's)")
	memory := fs.Int("memory", 512, "memory in MB")
	cpus := fs.Int("cpus", 2, "processors")
	cmdline := fs.String("cmdline", "", "words to add to the kernel's command line")
	tinylet := fs.String("tinylet", "", "tinylet binary to put into the board")
	console := fs.Bool("console", false, "show the console while the command runs")
	var put []board.File
	fs.Func("put", "`HOST:BOARD`: put a file of the host into the board; may be repeated", func(v string) error {
		host, path, ok := strings.Cut(v, ":")
		if !ok || !strings.HasPrefix(path, "/") {
			return errors.New("want a file of the host, a colon and an absolute path in the board")
		}
		put = append(put, board.File{Path: path, Mode: 0o755, Source: host})
		return nil
	})
	if err := fs.Parse(args[1:]); err != nil {
		return 2, err
	}
	opts := board.Options{Arch: board.Arch(*arch), Systemd: *systemd, Stock: board.Stock(*stock), Dpkg: *dpkg, CacheDir: *cache, Overlay: *overlay, Progress: os.Stderr}
	switch args[0] {
	case "packages":
		fmt.Println(strings.Join(board.MissingPackages(), " "))
		return 0, nil
	case "build":
		im, err := board.Prepare(ctx, opts)
		if err != nil {
			return 0, err
		}
		fmt.Println(im.Disk)
		return 0, nil
	case "lock":
		return 0, board.Lock(ctx, opts, os.Stdout)
	case "boot":
		vm := board.VMOptions{MemoryMB: *memory, CPUs: *cpus, ExtraCmdline: *cmdline}
		vm.Files = put
		if *tinylet != "" {
			vm.Files = append(vm.Files, board.TinyletFiles(*tinylet)...)
		}
		return boot(ctx, opts, vm, *console, fs.Args())
	}
	return 2, noVerb(fmt.Sprintf("unknown verb %q", args[0]))
}

// noVerb returns an error with the usage.
func noVerb(what string) error { return fmt.Errorf("%s; %s", what, strings.TrimSpace(usage)) }

func boot(ctx context.Context, o board.Options, v board.VMOptions, console bool, argv []string) (int, error) {
	im, err := board.Prepare(ctx, o)
	if err != nil {
		return 0, err
	}
	if console || len(argv) == 0 {
		v.Console = os.Stderr
	}
	start := time.Now()
	fmt.Fprintln(o.Progress, "booting")
	vm, err := board.Boot(ctx, im, v)
	if err != nil {
		return 0, err
	}
	defer vm.Close()
	fmt.Fprintf(o.Progress, "control program answers after %.1f s\n", time.Since(start).Seconds())
	if err := vm.WaitBooted(ctx); err != nil {
		return 0, err
	}
	fmt.Fprintf(o.Progress, "booted after %.1f s\n", time.Since(start).Seconds())
	if len(argv) == 0 {
		return 0, board.Interact(ctx, vm)
	}
	p, err := vm.Start(ctx, board.Cmd{Argv: argv, Stdin: strings.NewReader(""), Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		return 0, err
	}
	return p.Wait()
}
