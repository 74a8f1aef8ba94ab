// Command fuzz runs every fuzz target of the module for a while, one after
// the other, since `go test -fuzz` takes one at a time. One that fails keeps
// none of the others from running.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	each := flag.Duration("time", 10*time.Second, "how long each target runs")
	flag.Parse()
	if err := run(*each); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(each time.Duration) error {
	list := exec.Command("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...")
	list.Stderr = os.Stderr
	packages, err := list.Output()
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	ran, failed := 0, []string(nil)
	for _, pkg := range strings.Fields(string(packages)) {
		names, err := exec.Command("go", "test", "-list", "^Fuzz", pkg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("list fuzz targets of %s: %w: %s", pkg, err, names)
		}
		for line := range bytes.Lines(names) {
			name := strings.TrimSpace(string(line))
			if !strings.HasPrefix(name, "Fuzz") {
				continue
			}
			ran++
			if err := fuzz(pkg, name, each); err != nil {
				failed = append(failed, fmt.Sprintf("%s in %s: %v", name, pkg, err))
			}
		}
	}
	fmt.Printf("%d fuzz targets ran for %s each, %d failed\n", ran, each, len(failed))
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}

// attempts is how often a target runs that finds nothing and fails.
const attempts = 3

// fuzz runs one target.
func fuzz(pkg, name string, each time.Duration) error {
	for attempt := 1; ; attempt++ {
		fmt.Printf("==> %s %s for %s\n", pkg, name, each)
		// An input that finds new code is made smaller for a minute by
		// default, and nothing else is tried meanwhile.
		cmd := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+name+"$", "-fuzztime", each.String(), "-fuzzminimizetime", "1s", pkg)
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &output), os.Stderr
		if err := cmd.Run(); err == nil || attempt == attempts || !endedByDeadline(output.Bytes()) {
			return err
		}
	}
}

// endedByDeadline reports whether a run failed only because its time was over. Before Go
// 1.27 this happens now and then: the coordinator can see the deadline before the context
// of its workers has it, and takes it for a failure (https://go.dev/issue/75804).
func endedByDeadline(output []byte) bool {
	return bytes.Contains(output, []byte("s)\n    context deadline exceeded\nFAIL\n"))
}
