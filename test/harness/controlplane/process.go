//go:build cluster

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// logTail is how much of a log a failed test shows, in bytes.
const logTail = 3000

// process is a server that runs until kill.
type process struct {
	name string
	log  string // its file
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; read after done
}

// start starts a server in the namespace. What it says goes to the end of the
// file log.
func (n *namespace) start(name, log string, argv ...string) (*process, error) {
	f, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer f.Close()
	p := &process{name: name, log: log, done: make(chan struct{})}
	// Its life is the cluster's, which ends it after the test's context.
	p.cmd = n.exec(context.Background(), argv...)
	p.cmd.Stdout, p.cmd.Stderr = f, f
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// kill ends the server and what it started, at once, and waits for its end.
func (p *process) kill() {
	// The group has the server's id as long as the server is not waited for.
	if !p.ended() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended just now
	}
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// tail returns the end of the server's log.
func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data[max(0, len(data)-logTail):]))
}

// resident returns the server's memory, in bytes: what is in RAM now, and the
// most that was.
func (p *process) resident() (now, most int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	read := func(key string) int64 {
		_, after, _ := strings.Cut(string(status), "\n"+key+":")
		field, _, _ := strings.Cut(strings.TrimSpace(after), " ")
		kb, _ := strconv.ParseInt(field, 10, 64) // 0 when the kernel does not say
		return kb << 10
	}
	return read("VmRSS"), read("VmHWM")
}
