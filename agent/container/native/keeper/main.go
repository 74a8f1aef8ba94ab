package keeper

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Name is the name of the keeper's process, and the base of its first argument.
const Name = "tinylet-keeper"

// The heap of a keeper is a few hundred kB, and its garbage is that of requests.
const (
	gcPercent   = 10
	memoryLimit = 16 << 20
)

// oomScoreAdj makes the kernel kill everything else before the keeper. The OCI runtime
// program inherits it, and sets that of the container from config.json.
const oomScoreAdj = "-999"

// environment is that of the OCI runtime program.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// Main runs a keeper with the arguments of its process, until a failure. It returns the exit
// code.
func Main(args []string, build string, stderr io.Writer) int {
	flags := flag.NewFlagSet(Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "/run/tinylet/keeper", "directory of the keeper's `files`, on a tmpfs")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	log := slog.New(slog.NewTextHandler(stderr, nil))
	// After an upgrade the kernel would name the process by the number of a descriptor.
	if name, err := unix.BytePtrFromString(Name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(oomScoreAdj), 0); err != nil {
		log.Warn("cannot protect keeper from OOM killer", "error", err)
	}
	// A message without a reader must not end the process (os/signal). The OCI runtime program
	// does not inherit it, as it would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	k, err := Open(Config{Dir: *dir, Build: build, Env: environment, Log: log})
	if err == nil {
		err = k.Run()
	}
	_, _ = fmt.Fprintf(stderr, "%s: %v\n", Name, err)
	return 1
}
