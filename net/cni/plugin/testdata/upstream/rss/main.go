// Command rss runs a plugin and appends what memory it has had at most, in KiB,
// with the processes that it has started, to a file:
//
//	rss FILE PLUGIN
//
// It is as small as can be, since a process is counted from before it executes
// a program, when it has the memory of the one that has started it.
package main

import (
	"os"
	"strconv"
	"syscall"
)

func main() {
	pid, err := syscall.ForkExec(os.Args[2], os.Args[2:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		panic(err)
	}
	var status syscall.WaitStatus
	var usage syscall.Rusage
	if _, err := syscall.Wait4(pid, &status, 0, &usage); err != nil {
		panic(err)
	}
	file, err := os.OpenFile(os.Args[1], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := file.WriteString(strconv.FormatInt(int64(usage.Maxrss), 10) + "\n"); err != nil {
		panic(err)
	}
	os.Exit(status.ExitStatus())
}
