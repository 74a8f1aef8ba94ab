// Command demo boots a simulated board with tinylet, starts sample pods on it
// and shows them, as `make demo` promises.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

//go:embed manifests
var manifests embed.FS

const manifestDir = "/etc/kubernetes/manifests"

func main() {
	keep := flag.Bool("keep", false, "leave a console on the board at the end")
	memory := flag.Int("memory", 512, "the board's memory in MB")
	binary := flag.String("tinylet", "bin/tinylet-arm64", "the agent's arm64 binary")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, *keep, *memory, *binary)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, keep bool, memory int, binary string) error {
	say("making the board's image (minutes the first time, then cached)")
	im, err := board.Prepare(ctx, board.Options{Arch: board.ARM64, Progress: os.Stdout})
	if err != nil {
		return err
	}
	say("booting an arm64 board with %d MB, in software emulation", memory)
	vm, err := board.Boot(ctx, im, board.VMOptions{MemoryMB: memory, Files: board.TinyletFiles(binary)})
	if err != nil {
		return err
	}
	defer vm.Close()
	if err := vm.WaitBooted(ctx); err != nil {
		return err
	}
	say("the board is up; putting three manifests into %s", manifestDir)
	if err := putManifests(ctx, vm); err != nil {
		return err
	}
	if err := waitForPods(ctx, vm); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"tinylet", "ps"},
		{"tinylet", "logs", "web", "-c", "server", "--tail", "1"},
	} {
		fmt.Printf("\n# %s\n", strings.Join(argv, " "))
		out, err := vm.Must(ctx, argv...)
		if err != nil {
			return err
		}
		fmt.Print(out)
	}
	if keep {
		say("a console on the board follows; try: tinylet ps, tinylet describe web, tinylet logs -f web -c visitor, tinylet check")
		return board.Interact(ctx, vm)
	}
	fmt.Print(`
What to try next:
  make demo KEEP=1      the same with a console on the board at the end; there:
                        tinylet describe crashing, tinylet logs -f web -c visitor,
                        tinylet check, vi /etc/kubernetes/manifests/web.yaml
  make test             all tests, the boards' included
`)
	return nil
}

func putManifests(ctx context.Context, vm *board.VM) error {
	return fs.WalkDir(manifests, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := manifests.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return vm.Put(ctx, path.Join(manifestDir, path.Base(name)), f, 0o644)
	})
}

// waitForPods shows the pods' states as they change, until each is where its
// manifest leads it.
func waitForPods(ctx context.Context, vm *board.VM) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("the pods did not get to their states in 3 minutes"))
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	start, last := time.Now(), ""
	for {
		out, err := vm.Run(ctx, "tinylet", "ps")
		if now := states(string(out.Stdout)); err == nil && out.Exit == 0 && now != last {
			say("after %d s: %s", int(time.Since(start).Seconds()), now)
			last = now
			if settled(now) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// states is the pods' states in one line.
func states(table string) string {
	var pods []string
	for line := range strings.Lines(table) {
		// A line of a pod begins with its namespace, one of a container with
		// a blank: NAMESPACE NAME READY STATUS.
		if f := strings.Fields(line); len(f) > 3 && line[0] != ' ' && f[0] != "NAMESPACE" {
			pods = append(pods, f[1]+" "+f[3]+" "+f[2])
		}
	}
	return strings.Join(pods, ", ")
}

// settled reports whether the pods have the states that their manifests lead to.
func settled(states string) bool {
	for _, want := range []string{"web-board Running 2/2", "crashing-board CrashLoopBackOff", "once-board Completed"} {
		if !strings.Contains(states, want) {
			return false
		}
	}
	return true
}

func say(format string, args ...any) { fmt.Printf("==> "+format+"\n", args...) }
