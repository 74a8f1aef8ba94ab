package oci

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const roleVariable = "OCI_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "program" {
		os.Exit(fakeExec(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// process is the part of a process document that the fake program reads.
type process struct {
	Args     []string `json:"args"`
	Terminal bool     `json:"terminal"`
	Fail     bool     `json:"fail"` // of the program
	Hang     bool     `json:"hang"`

	ConsoleSize *specs.Box `json:"consoleSize"`
}

// sendTerminal makes a terminal, and sends its master to a socket.
func sendTerminal(path string, size *specs.Box) (slave *os.File, err error) {
	master, slave, err := openTerminal()
	if err != nil {
		return nil, err
	}
	if size != nil {
		if err := setSize(master, Size{uint16(size.Width), uint16(size.Height)}); err != nil {
			return nil, err
		}
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	_, _, err = conn.(*net.UnixConn).WriteMsgUnix([]byte("terminal"), unix.UnixRights(int(master.Fd())), nil)
	return slave, errors.Join(err, conn.Close(), master.Close())
}

// fakeExec is `exec` of an OCI runtime without a container.
func fakeExec(args []string) int {
	options, tty := map[string]string{}, false
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		options[name], tty = value, tty || arg == "--tty"
	}
	fail := func(err error) int {
		_ = os.WriteFile(options["log"], []byte(err.Error()), 0o600)
		return 1
	}
	data, err := os.ReadFile(options["process"])
	if err != nil {
		return fail(err)
	}
	var p process
	if err := json.Unmarshal(data, &p); err != nil {
		return fail(err)
	}
	if p.Hang {
		time.Sleep(time.Hour)
	}
	if p.Fail || p.Terminal != tty {
		return fail(errors.New("exec failed: no such file"))
	}
	run := exec.Command(p.Args[0], p.Args[1:]...)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: !tty}
	if path := options["console-socket"]; path != "" {
		slave, err := sendTerminal(path, p.ConsoleSize)
		if err != nil {
			return fail(err)
		}
		run.Stdin, run.Stdout, run.Stderr = slave, slave, slave
		run.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		defer func() { _ = slave.Close() }()
	}
	if err := run.Start(); err != nil {
		return fail(err)
	}
	if err := os.WriteFile(options["pid-file"], []byte(strconv.Itoa(run.Process.Pid)), 0o600); err != nil {
		return fail(err)
	}
	_ = run.Wait()
	status := run.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// command runs a script.
func command(t *testing.T, script string, change ...func(*Command, *process)) *Command {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &Command{
		Program: Program{program}, Container: "c1", Dir: t.TempDir(),
		Env: []string{roleVariable + "=program", "PATH=" + os.Getenv("PATH")},
	}
	p := process{Args: []string{"sh", "-c", script}}
	for _, f := range change {
		f(c, &p)
	}
	p.Terminal = c.Terminal
	if c.Process, err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(c.Dir); err != nil || len(left) > 0 {
			t.Errorf("the directory has %v, %v", left, err)
		}
	})
	return c
}

func TestCommand(t *testing.T) {
	var stdout, stderr bytes.Buffer
	c := command(t, "cat; echo err >&2; exit 3", func(c *Command, _ *process) {
		c.Stdin, c.Stdout, c.Stderr = strings.NewReader("input\n"), &stdout, &stderr
	})
	if code, err := c.Run(t.Context()); code != 3 || err != nil || stdout.String() != "input\n" || stderr.String() != "err\n" {
		t.Errorf("got %d, %v, %q, %q", code, err, &stdout, &stderr)
	}
	if code, err := command(t, "kill -9 $$").Run(t.Context()); code != 137 || err != nil {
		t.Errorf("a command that is killed: %d, %v", code, err)
	}
	if code, err := command(t, "read x || exit 5").Run(t.Context()); code != 5 || err != nil {
		t.Errorf("without an input: %d, %v", code, err)
	}
}

func TestCommandFails(t *testing.T) {
	for name, change := range map[string]func(*Command, *process){
		"no such file":       func(_ *Command, p *process) { p.Fail = true },
		"/nonexistent":       func(c *Command, _ *process) { c.Program = Program{"/nonexistent"} },
		"is not absolute":    func(c *Command, _ *process) { c.Program = Program{"crun"} },
		"container c1":       func(_ *Command, p *process) { p.Fail = true },
		"OCI runtime failed": func(_ *Command, p *process) { p.Fail = true },
	} {
		if _, err := command(t, "true", change).Run(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

// TestCommandEnded ends the context: the command is killed, or the program before it has
// started the command.
func TestCommandEnded(t *testing.T) {
	for name, hang := range map[string]bool{"runs": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			cause := errors.New("timeout")
			ctx, cancel := context.WithCancelCause(t.Context())
			out := &cancelling{cancel: func() { cancel(cause) }}
			if hang {
				time.AfterFunc(300*time.Millisecond, out.cancel)
			}
			c := command(t, "echo $$; exec sleep 1000", func(c *Command, p *process) { c.Stdout, p.Hang = out, hang })
			if _, err := c.Run(ctx); !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
			if hang {
				return
			}
			pid, err := strconv.Atoi(strings.TrimSpace(out.text.String()))
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("process %d: %v", pid, err)
			}
		})
	}
}

// cancelling calls cancel when it gets output.
type cancelling struct {
	text   bytes.Buffer
	cancel func()
}

func (c *cancelling) Write(b []byte) (int, error) {
	defer c.cancel()
	return c.text.Write(b)
}

// TestCommandOutputHeld has a process that holds the output after the end of the command.
func TestCommandOutputHeld(t *testing.T) {
	var out bytes.Buffer
	start := time.Now()
	code, err := command(t, "sleep 30 & echo $!; exit 4", func(c *Command, _ *process) { c.Stdout = &out }).Run(t.Context())
	if code != 4 || err != nil || time.Since(start) > 15*time.Second {
		t.Errorf("got %d, %v after %s", code, err, time.Since(start))
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(out.String())); err == nil {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func TestCommandTerminal(t *testing.T) {
	for name, sends := range map[string]bool{"copied by the program": false, "sent by the program": true} {
		t.Run(name, func(t *testing.T) { testTerminal(t, sends) })
	}
}

// TestCommandTerminalWhole has a program that ends before the output was read.
func TestCommandTerminalWhole(t *testing.T) {
	for range 20 {
		var out bytes.Buffer
		c := command(t, "printf hello", func(c *Command, _ *process) { c.Terminal, c.SendsTerminal, c.Stdout = true, true, &out })
		if code, err := c.Run(t.Context()); code != 0 || err != nil || out.String() != "hello" {
			t.Fatalf("got %d, %v, %q", code, err, &out)
		}
	}
}

// TestCommandSendsNoTerminal has programs that fail before they have sent the terminal, or hang.
func TestCommandSendsNoTerminal(t *testing.T) {
	c := command(t, "true", func(c *Command, p *process) { c.Terminal, c.SendsTerminal, p.Fail = true, true, true })
	if _, err := c.Run(t.Context()); !errors.Is(err, ErrFailed) {
		t.Errorf("a program that fails: %v", err)
	}
	c = command(t, "true", func(c *Command, p *process) { c.Terminal, c.SendsTerminal, p.Hang = true, true, true })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that hangs: %v", err)
	}
	c = command(t, "true", func(c *Command, _ *process) {
		c.Terminal, c.SendsTerminal, c.Program = true, true, Program{"/nonexistent"}
	})
	if _, err := c.Run(t.Context()); !errors.Is(err, ErrFailed) {
		t.Errorf("no program: %v", err)
	}
}

func testTerminal(t *testing.T, sends bool) {
	input, typed := io.Pipe()
	sizes := make(chan Size, 1)
	sizes <- Size{Width: 99, Height: 22}
	output, shown := io.Pipe()
	c := command(t, "stty size; until [ \"$(stty size)\" = '10 50' ]; do sleep 0.01; done; read x; echo got $x; exit 6", func(c *Command, _ *process) {
		c.Terminal, c.SendsTerminal, c.Stdin, c.Stdout, c.Resize = true, sends, input, shown, sizes
	})
	type result struct {
		code int32
		err  error
	}
	done := make(chan result, 1)
	go func() {
		code, err := c.Run(t.Context())
		_ = shown.Close()
		done <- result{code, err}
	}()
	lines := bufio.NewReader(output)
	if first, err := lines.ReadString('\n'); first != "22 99\r\n" || err != nil {
		t.Errorf("the first size is %q, %v", first, err)
	}
	sizes <- Size{Width: 50, Height: 10}
	if _, err := io.WriteString(typed, "typed\n"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(text), "got typed\r\n") {
		t.Errorf("the terminal shows %q, %v", text, err)
	}
	if got := <-done; got.code != 6 || got.err != nil {
		t.Errorf("got %+v", got)
	}
	_ = typed.Close()
}

// TestSweep kills commands of an agent that has died, and no other process.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	var pids []int
	for _, container := range []string{"mine", "other"} {
		run := exec.Command("sleep", "1000")
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = run.Process.Kill()
			_ = run.Wait()
		})
		pids = append(pids, run.Process.Pid)
		path := filepath.Join(dir, commandPrefix+container)
		if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, commandPID), []byte(fmt.Sprint(run.Process.Pid)), 0o600),
			os.WriteFile(filepath.Join(path, commandContainer), []byte(container), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "exec-empty"), 0o700), Sweep(dir, func(_ int, container string) bool { return container == "mine" })); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left are %v, %v", left, err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pids[0], &status, 0, nil); err != nil || status.Signal() != unix.SIGKILL {
		t.Errorf("the command: %v, %v", status, err)
	}
	if err := unix.Kill(pids[1], 0); err != nil {
		t.Errorf("the other process: %v", err)
	}
	if err := Sweep(filepath.Join(dir, "none"), nil); err != nil {
		t.Error(err)
	}
}
