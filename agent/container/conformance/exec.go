package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/container"
)

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func testExec(w *testEnv) {
	_, id := w.runReady(scriptReady)
	limit := w.Timeout + 10*time.Second
	for _, tt := range []struct {
		name           string
		cmd            []string
		stdout, stderr string
		code           int32
	}{
		{"true", []string{"/bin/true"}, "", "", 0},
		{"false", []string{"/bin/false"}, "", "", 1},
		{"output", shell("echo out; echo err >&2"), "out\n", "err\n", 0},
		{"code", shell("echo half; exit 42"), "half\n", "", 42},
		{"some time", shell("sleep 1; echo late"), "late\n", "", 0},
		{"largest code", shell("exit 255"), "", "", 255},
		{"more than is kept", shell("echo " + strings.Repeat("x", container.MaxExecOutput+1000)), strings.Repeat("x", container.MaxExecOutput), "", 0},
	} {
		stdout, stderr, code, err := w.Runtime.ExecSync(w.Context(), id, tt.cmd, limit)
		if err != nil {
			w.Errorf("%s: %v", tt.name, err)
			continue
		}
		if string(stdout) != tt.stdout || string(stderr) != tt.stderr || code != tt.code {
			w.Errorf("%s: stdout %q, stderr %q, code %d; want %q, %q, %d", tt.name, stdout, stderr, code, tt.stdout, tt.stderr, tt.code)
		}
	}
	if _, _, code, err := w.Runtime.ExecSync(w.Context(), id, shell("exit 3"), 0); err != nil || code != 3 {
		w.Errorf("a command without a limit: code %d, %v", code, err)
	}
}

func testExecTimeout(w *testEnv) {
	_, id := w.runReady(scriptReady)
	begun := time.Now()
	_, _, _, err := w.Runtime.ExecSync(w.Context(), id, shell("sleep 1000"), 1500*time.Millisecond)
	if !errors.Is(err, container.ErrTimeout) {
		w.Errorf("a command beyond its timeout: %v, want ErrTimeout", err)
	}
	if took := time.Since(begun); took < 1500*time.Millisecond || took > 2*time.Second+w.Timeout {
		w.Errorf("the command was ended after %v", took)
	}
	// The container itself is not affected.
	if _, _, code, err := w.Runtime.ExecSync(w.Context(), id, []string{"/bin/true"}, w.Timeout); err != nil || code != 0 {
		w.Errorf("a command after a timeout: code %d, %v", code, err)
	}
}

func testExecRefused(w *testEnv) {
	p, id := w.runReady(scriptReady)
	if _, _, code, err := w.Runtime.ExecSync(w.Context(), id, []string{"/no/such/program"}, w.Timeout); err == nil {
		w.Errorf("a program that does not exist ended with %d", code)
	}
	created := p.create(p.containerConfig("created", scriptForever))
	if _, _, _, err := w.Runtime.ExecSync(w.Context(), created, []string{"/bin/true"}, w.Timeout); err == nil {
		w.Error("a command ran in a container that does not")
	}
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), id, 0))
	w.waitExited(id)
	if _, _, _, err := w.Runtime.ExecSync(w.Context(), id, []string{"/bin/true"}, w.Timeout); err == nil {
		w.Error("a command ran in a stopped container")
	}
	if err := w.Runtime.ReopenContainerLog(w.Context(), id); err == nil {
		w.Error("the log of a stopped container was reopened")
	}
	if _, _, _, err := w.Runtime.ExecSync(w.Context(), unknownID, []string{"/bin/true"}, w.Timeout); !errors.Is(err, container.ErrNotFound) {
		w.Errorf("ExecSync in an unknown container: %v, want ErrNotFound", err)
	}
	if err := w.Runtime.ReopenContainerLog(w.Context(), unknownID); !errors.Is(err, container.ErrNotFound) {
		w.Errorf("ReopenContainerLog of an unknown container: %v, want ErrNotFound", err)
	}
}

// testReopenLog rotates a log as the agent does: rename, then reopen. The lines
// are written through the standard output of the container's first process.
func testReopenLog(w *testEnv) {
	p, id := w.runReady(scriptReady)
	path := filepath.Join(p.config.GetLogDirectory(), "main", "0.log")
	old := path + ".old"
	say := func(word string) {
		w.Helper()
		_, stderr, code, err := w.Runtime.ExecSync(w.Context(), id, shell("echo "+word+" > /proc/1/fd/1"), w.Timeout)
		if err != nil || code != 0 {
			w.Fatalf("write to the log: code %d, %s, %v", code, stderr, err)
		}
	}
	holds := func(file, word string) {
		w.Helper()
		w.eventually(word+" in "+file, func() error {
			data, err := os.ReadFile(file)
			if err == nil && !bytes.Contains(data, []byte(" stdout F "+word+"\n")) {
				err = fmt.Errorf("it holds %q", data)
			}
			return err
		})
	}
	w.ok("rename the log", os.Rename(path, old))
	say("before")
	holds(old, "before")
	w.ok("ReopenContainerLog", w.Runtime.ReopenContainerLog(w.Context(), id))
	if _, err := os.Stat(path); err != nil {
		w.Errorf("the new log: %v", err)
	}
	say("after")
	holds(path, "after")
	for file, word := range map[string]string{old: "after", path: "before"} {
		if data, err := os.ReadFile(file); err != nil || bytes.Contains(data, []byte(word)) {
			w.Errorf("%s holds %q, %v", file, data, err)
		}
	}
	w.ok("ReopenContainerLog with the file in place", w.Runtime.ReopenContainerLog(w.Context(), id))
	say("again")
	holds(path, "after")
	holds(path, "again")
}
