//go:build linux

// Program standin stands in for programs of critest's images and of the machine that it
// runs on, which a board with BusyBox does not have. Its name selects one.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var programs = map[string]func([]string) error{
	"httpd": serve,
	"ipcmk": makeSegment,
	"ipcs":  listSegments,
	"nginx": serve,
	"nnp":   effectiveUser,
	"pgrep": findProcesses,
}

func main() {
	name := filepath.Base(os.Args[0])
	run, ok := programs[name]
	if !ok {
		run = func([]string) error { return errors.New("no such program") }
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// serve serves a page on the port that is the first argument. Before that it writes
// its process ID to /var/run, and a line with its name, as upstream's servers do.
func serve(args []string) error {
	if len(args) == 0 {
		return errors.New("no port")
	}
	name := filepath.Base(os.Args[0])
	if err := os.MkdirAll("/var/run", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("/var/run/"+name+".pid", []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s serves port %s\n", name, args[0])
	s := &http.Server{Addr: ":" + args[0], ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "Welcome to "+name)
	})}
	return s.ListenAndServe()
}

// makeSegment makes a shared memory segment: ipcmk -M SIZE.
func makeSegment(args []string) error {
	if len(args) != 2 || args[0] != "-M" {
		return errors.New("usage: ipcmk -M SIZE")
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, size, unix.IPC_CREAT|0o644)
	if err != nil {
		return fmt.Errorf("make a segment: %w", err)
	}
	fmt.Printf("Shared memory id: %d\n", id)
	return nil
}

// listSegments lists the IDs of the shared memory segments: ipcs -m.
func listSegments([]string) error {
	text, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			fmt.Println(fields[1]) // the first line has the name of the column
		}
	}
	return nil
}

// effectiveUser prints what upstream's image nonewprivs prints.
func effectiveUser([]string) error {
	fmt.Printf("Effective uid: %d\n", os.Geteuid())
	return nil
}

// findProcesses prints the IDs of the processes whose name contains the first argument.
func findProcesses(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: pgrep NAME")
	}
	found := false
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(name, []byte(args[0])) {
			continue // one that has ended has no name
		}
		fmt.Println(filepath.Base(filepath.Dir(path)))
		found = true
	}
	if !found {
		os.Exit(1)
	}
	return nil
}
