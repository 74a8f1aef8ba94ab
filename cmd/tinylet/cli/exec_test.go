package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/tinylet/tinylet/agent/server/local"
)

// shell is the server side of a session, with Kubernetes' implementation of the
// protocol.
type shell struct {
	asked   *http.Request
	session httpstream.Connection
	streams map[string]httpstream.Stream
}

// sessions serves sessions with script.
func sessions(script func(*shell)) func(*local.Config) {
	return func(c *local.Config) {
		c.Streaming = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(httpstream.HeaderProtocolVersion, "v4.channel.k8s.io")
			sh := &shell{asked: r, streams: make(map[string]httpstream.Stream)}
			opened := make(chan httpstream.Stream, 5)
			sh.session = spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
				opened <- s
				return nil
			})
			if sh.session == nil {
				return
			}
			missing := 1
			for _, parameter := range []string{"input", "output", "error", "tty"} {
				if r.URL.Query().Get(parameter) == "1" {
					missing++
				}
			}
			for range missing {
				s := <-opened
				sh.streams[s.Headers().Get("streamtype")] = s
			}
			script(sh)
			<-sh.session.CloseChan() // until the client has read all
			_ = sh.session.Close()
		})
	}
}

// input returns the next data of a stream; false means its end.
func (sh *shell) input(stream string) (string, bool) {
	b := make([]byte, 32<<10)
	n, err := sh.streams[stream].Read(b)
	return string(b[:n]), err == nil
}

func (sh *shell) say(stream, text string) { _, _ = io.WriteString(sh.streams[stream], text) }

func (sh *shell) exit(code int) {
	status := `{"status":"Success"}`
	if code != 0 {
		status = fmt.Sprintf(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"%d"}]}}`, code)
	}
	sh.fail(status)
}

func (sh *shell) fail(status string) {
	if status != "" {
		sh.say("error", status)
	}
	for _, s := range sh.streams {
		_ = s.Close()
	}
}

// execIn runs exec with standard input and also returns the exit code.
func (n *node) execIn(ctx context.Context, stdin *os.File, args ...string) (stdout, stderr string, code int, err error) {
	var out, errs bytes.Buffer
	n.system.stdin = stdin
	root := &cobra.Command{Use: "tinylet", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(n.system.commands()...)
	root.SetArgs(append([]string{"exec", "--socket", n.socket}, args...))
	root.SetOut(&out)
	root.SetErr(&errs)
	err = root.ExecuteContext(ctx)
	var coded *ExitError
	switch {
	case errors.As(err, &coded):
		code = coded.Code
	case err != nil:
		code = 1
	}
	return out.String(), errs.String(), code, err
}

func TestExec(t *testing.T) {
	var asked *http.Request
	n := newNode(t, samplePods(), nil, sessions(func(sh *shell) {
		asked = sh.asked
		sh.say("stdout", "out\n")
		sh.say("stderr", "err\n")
		sh.exit(7)
	}))
	out, errs, code, err := n.execIn(t.Context(), nil, "web-board", "-c", "proxy", "--", "sh", "-c", "exit 7", "-x")
	if out != "out\n" || errs != "err\n" || code != 7 || err.Error() != "" {
		t.Errorf("stdout %q, stderr %q, code %d, %v", out, errs, code, err)
	}
	if path := "/exec/default/web-board/6e1b/proxy"; asked.URL.Path != path {
		t.Errorf("asked %s, want %s", asked.URL.Path, path)
	}
	want := map[string][]string{"command": {"sh", "-c", "exit 7", "-x"}, "output": {"1"}, "error": {"1"}}
	if diff := cmp.Diff(want, map[string][]string(asked.URL.Query())); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}
}

func TestExecChoosesTheContainer(t *testing.T) {
	var path string
	n := newNode(t, samplePods(), nil, sessions(func(sh *shell) { path = sh.asked.URL.Path; sh.exit(0) }))
	if _, errs, code, err := n.execIn(t.Context(), nil, "default/web-b", "--", "ls"); err != nil || code != 0 || !strings.Contains(errs, `defaulted container "nginx" out of: setup, proxy, nginx; select another one with -c`) {
		t.Errorf("%d, %v, %q", code, err, errs)
	}
	if !strings.HasSuffix(path, "/nginx") {
		t.Errorf("asked %s", path)
	}
}

func TestExecErrors(t *testing.T) {
	answers := func(code int, text string) func(*local.Config) {
		return func(c *local.Config) {
			c.Streaming = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) })
		}
	}
	good := []string{"crash", "--", "ls"}
	for name, tt := range map[string]struct {
		args  []string
		agent func(*local.Config)
		code  int
		text  string
	}{
		"no such pod":       {args: []string{"none", "--", "ls"}, code: codeNotFound, text: `no pod has the name or name prefix "none"`},
		"several pods":      {args: []string{"web", "--", "ls"}, code: codeNotFound, text: "default/web-board, default/web2-board"},
		"no such container": {args: []string{"crash", "-c", "x", "--", "ls"}, code: codeNotFound, text: `pod "crash-board" has no container "x"; its containers are main`},
		"no dash":           {args: []string{"crash", "ls"}, code: 1, text: "write tinylet exec POD -- COMMAND"},
		"no dash, flags":    {args: []string{"crash", "ls", "-l"}, code: 1, text: "unknown shorthand flag: 'l'"},
		"no command":        {args: []string{"crash", "--"}, code: 1, text: "the command after -- is missing"},
		"no pod":            {args: []string{"--", "ls"}, code: 1, text: "0 arguments before --"},
		"two pods":          {args: []string{"crash", "web", "--", "ls"}, code: 1, text: "2 arguments before --"},
		"no terminal":       {args: []string{"crash", "-it", "--", "sh"}, code: 1, text: "-t needs a terminal"},
		"not running": {args: good, agent: answers(409, "container \x1b[2J\"main\" is waiting: CrashLoopBackOff"), code: codeNotFound,
			text: `exec in container "main" of default/crash-board: container  [2J"main" is waiting: CrashLoopBackOff`},
		"gone meanwhile": {args: good, agent: answers(404, "there is no such pod any more"), code: codeNotFound, text: "there is no such pod any more"},
		"runtime fails":  {args: good, agent: answers(502, "the runtime is broken"), code: 1, text: "main\" of default/crash-board: the runtime is broken"},
		"no such program": {args: good, agent: sessions(func(sh *shell) {
			sh.fail(`{"status":"Failure","reason":"InternalError","message":"exec: \"ls\":\n not found in $PATH"}`)
		}), code: 1, text: `crash-board: exec: "ls":  not found in $PATH`},
		"breaks off": {args: good, agent: sessions(func(sh *shell) { sh.say("stdout", "x"); sh.fail("") }), code: 1, text: "crash-board: session ended without the command's exit status"},
	} {
		t.Run(name, func(t *testing.T) {
			changes := []func(*local.Config){}
			if tt.agent != nil {
				changes = append(changes, tt.agent)
			}
			n := newNode(t, samplePods(), nil, changes...)
			_, _, code, err := n.execIn(t.Context(), nil, tt.args...)
			if code != tt.code || err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("code %d, %v; want %d, %s", code, err, tt.code, tt.text)
			}
		})
	}
	t.Run("no agent", func(t *testing.T) {
		_, _, code, err := newNode(t, nil, nil).execIn(t.Context(), nil, good...)
		if code != codeNoAgent || !errors.Is(err, local.ErrNotRunning) {
			t.Errorf("code %d, %v", code, err)
		}
	})
}

func pipes(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// TestExecInput passes all input with its end. A command that ends earlier does not
// wait for input.
func TestExecInput(t *testing.T) {
	n := newNode(t, samplePods(), nil, sessions(func(sh *shell) {
		if sh.asked.URL.Query().Get("command") == "early" {
			sh.exit(3)
			return
		}
		for all := ""; ; {
			text, more := sh.input("stdin")
			if all += text; !more {
				sh.say("stdout", all)
				sh.exit(0)
				return
			}
		}
	}))
	r, w := pipes(t)
	if _, _, code, _ := n.execIn(t.Context(), r, "crash", "-i", "--", "early"); code != 3 {
		t.Errorf("code %d", code)
	}
	text := strings.Repeat("all of it ", 5000) // more than a frame, less than a pipe
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if out, _, code, err := n.execIn(t.Context(), r, "crash", "-i", "--", "cat"); out != text || err != nil {
		t.Errorf("%d bytes of %d, code %d, %v", len(out), len(text), code, err)
	}
	if _, _, _, err := n.execIn(t.Context(), nil, "crash", "-i", "--", "cat"); err == nil || !strings.Contains(err.Error(), "standard input: it is not open") {
		t.Errorf("without an input: %v", err)
	}
}

// TestExecInterrupted ends exec while the command still runs.
func TestExecInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := newNode(t, samplePods(), nil, sessions(func(*shell) { cancel() }))
	r, _ := pipes(t)
	_, _, code, err := n.execIn(ctx, r, "crash", "-i", "--", "cat")
	if code != codeInterrupted || err.Error() != "" {
		t.Errorf("code %d, %v", code, err)
	}
}

// pty opens a pseudoterminal and returns both ends.
func pty(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skipf("there are no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

func resize(t *testing.T, f *os.File, width, height uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
}

func isRaw(t *testing.T, f *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0 && state.Oflag&unix.OPOST == 0
}

func TestExecOnATerminal(t *testing.T) {
	person, program := pty(t)
	resize(t, program, 80, 25)
	n := newNode(t, samplePods(), nil, sessions(func(sh *shell) {
		first, _ := sh.input("resize")
		if _, err := person.WriteString("\x03"); err != nil { // no signal, but input
			t.Error(err)
		}
		key, _ := sh.input("stdin")
		if !isRaw(t, program) {
			t.Error("the terminal is not raw")
		}
		resize(t, program, 132, 50)
		if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
			t.Error(err)
		}
		second, _ := sh.input("resize")
		sh.say("stdout", fmt.Sprintf("%s %q %s", strings.TrimSpace(first), key, strings.TrimSpace(second)))
		sh.exit(2)
	}))
	out, _, code, err := n.execIn(t.Context(), program, "crash", "-it", "--", "sh")
	if want := `{"Width":80,"Height":25} "\x03" {"Width":132,"Height":50}`; out != want || code != 2 {
		t.Errorf("%s, code %d, %v; want %s", out, code, err, want)
	}
	if isRaw(t, program) {
		t.Error("the terminal is raw after the command")
	}
}

// TestTerminalIsRestored ends exec in different ways.
func TestTerminalIsRestored(t *testing.T) {
	for name, end := range map[string]func(*shell, func()){
		"refused":  func(sh *shell, _ func()) { sh.fail("") },
		"signal":   func(_ *shell, cancel func()) { cancel() },
		"hang-up":  func(*shell, func()) { _ = syscall.Kill(os.Getpid(), syscall.SIGHUP) },
		"quit":     func(*shell, func()) { _ = syscall.Kill(os.Getpid(), syscall.SIGQUIT) },
		"vanishes": func(sh *shell, _ func()) { _ = sh.session.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			person, program := pty(t)
			ctx, cancel := context.WithCancel(t.Context())
			said := make(chan struct{})
			n := newNode(t, samplePods(), nil, sessions(func(sh *shell) {
				defer close(said)
				_, _ = person.WriteString("x")
				if _, more := sh.input("stdin"); !more || !isRaw(t, program) {
					t.Error("the terminal is not raw in the session")
				}
				end(sh, cancel)
			}))
			_, _, code, err := n.execIn(ctx, program, "crash", "-it", "--", "sh")
			if code == 0 || err == nil {
				t.Errorf("code %d, %v", code, err)
			}
			<-said
			if isRaw(t, program) {
				t.Error("the terminal is raw at the end")
			}
		})
	}
}

func TestTerminalIsRestoredWhileTheCommandHangs(t *testing.T) {
	_, program := pty(t)
	ctx, cancel := context.WithCancel(t.Context())
	term := openTerminal(ctx, program, func() {})
	defer term.close()
	if err := term.raw(); err != nil || !isRaw(t, program) {
		t.Fatalf("raw: %v", err)
	}
	cancel()
	for deadline := time.Now().Add(20 * time.Second); isRaw(t, program); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the terminal is raw after the signal")
		}
	}
	if err := term.raw(); err != nil || isRaw(t, program) {
		t.Errorf("raw again, %v", err)
	}
}

// TestTerminalWithoutInput does not set raw mode: without -i, the keys belong to the
// local shell.
func TestTerminalWithoutInput(t *testing.T) {
	_, program := pty(t)
	if !term.IsTerminal(int(program.Fd())) {
		t.Fatal("a pseudo terminal is none")
	}
	n := newNode(t, samplePods(), nil, sessions(func(sh *shell) {
		sh.say("stdout", fmt.Sprintf("%t %s", isRaw(t, program), sh.asked.URL.Query().Get("tty")))
		sh.exit(0)
	}))
	if out, _, _, err := n.execIn(t.Context(), program, "crash", "-t", "--", "top"); out != "false 1" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}
